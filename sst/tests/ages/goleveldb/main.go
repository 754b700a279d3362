// LevelDB in Go, whose tables chains keep: makes a database whose only table file has every version that was written.
// Operations are those of ../history.c, puts and deletes.
//
//	goleveldb FOLDER OPTIONS    < operations    `snappy`, `filter`, both or neither
package main

import (
	"bufio"
	"encoding/hex"
	"os"
	"strings"

	"github.com/syndtr/goleveldb/leveldb"
	"github.com/syndtr/goleveldb/leveldb/filter"
	"github.com/syndtr/goleveldb/leveldb/opt"
)

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func open(folder, options string) *leveldb.DB {
	form := &opt.Options{BlockSize: 256, Compression: opt.NoCompression}
	if strings.Contains(options, "snappy") {
		form.Compression = opt.SnappyCompression
	}
	if strings.Contains(options, "filter") {
		form.Filter = filter.NewBloomFilter(10)
	}
	db, err := leveldb.OpenFile(folder, form)
	check(err)
	return db
}

func main() {
	folder, options := os.Args[1], os.Args[2]
	db := open(folder, options)
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		fields := append(strings.Split(lines.Text(), " "), "")
		key, err := hex.DecodeString(fields[1])
		check(err)
		value, err := hex.DecodeString(fields[2])
		check(err)
		if fields[0] == "D" {
			check(db.Delete(key, nil))
		} else {
			check(db.Put(key, value, nil))
		}
	}
	check(lines.Err())
	check(db.Close())
	// Its journal becomes a table when it is opened again.
	check(open(folder, options).Close())
}
