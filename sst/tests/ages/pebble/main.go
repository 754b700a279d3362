// Pebble with format version 2, which its oldest stores have: writes table files, or ingests one and asks for every key
// by Get. Input and output are those of ../rocksdb.c.
//
//	pebble write FILE OPTIONS    < keys
//	pebble get FOLDER FILE       < keys
//	pebble ranges FOLDER                    a store whose only table holds one range deletion
package main

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"os"

	"github.com/cockroachdb/pebble"
	"github.com/cockroachdb/pebble/bloom"
	"github.com/cockroachdb/pebble/objstorage/objstorageprovider"
	"github.com/cockroachdb/pebble/sstable"
	"github.com/cockroachdb/pebble/vfs"
)

func check(err error) {
	if err != nil {
		panic(err)
	}
}

// keys returns the keys of the input.
func keys() (all [][]byte) {
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		key, err := hex.DecodeString(lines.Text())
		check(err)
		all = append(all, key)
	}
	check(lines.Err())
	return all
}

func open(folder string) *pebble.DB {
	levels := []pebble.LevelOptions{{Compression: pebble.NoCompression, FilterPolicy: bloom.FilterPolicy(10)}}
	db, err := pebble.Open(folder, &pebble.Options{Levels: levels})
	check(err)
	return db
}

func write(path, options string) {
	var bits int
	_, err := fmt.Sscanf(options, "filter_policy=bloomfilter:%d", &bits)
	check(err)
	file, err := vfs.Default.Create(path)
	check(err)
	form := sstable.WriterOptions{
		Compression: pebble.NoCompression, FilterPolicy: bloom.FilterPolicy(bits), TableFormat: sstable.TableFormatRocksDBv2,
	}
	writer := sstable.NewWriter(objstorageprovider.NewFileWritable(file), form)
	for _, key := range keys() {
		check(writer.Set(key, key))
	}
	check(writer.Close())
}

func get(folder, file string) {
	db := open(folder)
	all := keys()
	// Pebble does not ask filters in the lowest level: an older version of the first key takes the file's place there.
	check(db.Set(all[0], []byte("older"), nil))
	check(db.Flush())
	check(db.Compact(all[0], append(bytes.Clone(all[0]), 0), false))
	check(db.Ingest([]string{file}))
	for _, key := range all {
		value, closer, err := db.Get(key)
		switch {
		case errors.Is(err, pebble.ErrNotFound):
			fmt.Print("-")
			continue
		case err != nil:
			panic(err)
		case bytes.Equal(key, value):
			fmt.Print("+")
		default:
			fmt.Print("!")
		}
		check(closer.Close())
	}
	fmt.Printf("\n%d\n", db.Metrics().Filter.Hits)
	check(db.Close())
}

func ranges(folder string) {
	db := open(folder)
	check(db.DeleteRange([]byte("b"), []byte("d"), nil))
	check(db.Flush())
	check(db.Close())
}

func main() {
	switch os.Args[1] {
	case "write":
		write(os.Args[2], os.Args[3])
	case "get":
		get(os.Args[2], os.Args[3])
	case "ranges":
		ranges(os.Args[2])
	}
}
