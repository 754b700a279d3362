module ages

go 1.21

require github.com/cockroachdb/pebble v1.1.5
