// C functions over RocksDB's table files: its own flush, its reader, its ingestion.
//
// A status that is not the expected one ends the process: a benchmark of wrong answers is worth nothing.

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "rocksdb/cache.h"
#include "rocksdb/db.h"
#include "rocksdb/filter_policy.h"
#include "rocksdb/merge_operator.h"
#include "rocksdb/options.h"
#include "rocksdb/sst_file_reader.h"
#include "rocksdb/table.h"
#include "rocksdb/write_batch.h"
#include "utilities/merge_operators.h"

using namespace ROCKSDB_NAMESPACE;

namespace {

struct Entries {
  const uint8_t* keys;
  const uint8_t* values;
  const uint64_t* sequences;
  size_t key_len;
  size_t value_len;
  size_t count;
};

struct TableFileOptions {
  uint32_t format_version;
  uint8_t checksum;
  uint8_t protection_bytes;
  // `paranoid_file_checks`: each new file is read back.
  uint8_t read_back;
  // Blocks are kept in a cache and verified once.
  uint8_t cached;
};

constexpr size_t kBatch = 1000;
constexpr uint64_t kFnvBasis = 0xcbf29ce484222325;
constexpr uint64_t kFnvPrime = 0x100000001b3;

Slice Bytes(const uint8_t* data, size_t len) {
  return Slice(reinterpret_cast<const char*>(data), len);
}

void Must(const Status& status, const char* what) {
  if (!status.ok()) {
    fprintf(stderr, "%s: %s\n", what, status.ToString().c_str());
    abort();
  }
}

uint64_t Fnv(uint64_t hash, const Slice& bytes) {
  for (size_t at = 0; at < bytes.size(); at++) {
    hash = (hash ^ static_cast<uint8_t>(bytes[at])) * kFnvPrime;
  }
  return hash;
}

uint64_t Word(const char* at) {
  uint64_t word;
  memcpy(&word, at, 8);
  return word;
}

// Folds a value of at least 8 bytes, by the same function as in Rust.
uint64_t Fold(uint64_t hash, const Slice& value) {
  hash = hash << 7 | hash >> 57;
  uint64_t last = Word(value.data() + value.size() - 8);
  return hash ^ Word(value.data()) ^ (last << 32 | last >> 32);
}

Options Filled(const TableFileOptions& wanted) {
  BlockBasedTableOptions table;
  table.format_version = wanted.format_version;
  table.checksum = static_cast<ChecksumType>(wanted.checksum);
  table.filter_policy.reset(NewBloomFilterPolicy(10, false));
  table.optimize_filters_for_memory = false;
  table.no_block_cache = wanted.cached == 0;
  if (wanted.cached != 0) {
    table.block_cache = NewLRUCache(size_t{1} << 30);
  }
  Options options;
  options.create_if_missing = true;
  options.compression = kNoCompression;
  options.write_buffer_size = size_t{1} << 31;
  options.disable_auto_compactions = true;
  options.avoid_flush_during_shutdown = true;
  options.stats_dump_period_sec = 0;
  options.stats_persist_period_sec = 0;
  options.allow_mmap_reads = true;
  options.memtable_protection_bytes_per_key = wanted.protection_bytes;
  options.paranoid_file_checks = wanted.read_back != 0;
  options.merge_operator = MergeOperators::CreateStringAppendOperator(',');
  options.table_factory.reset(NewBlockBasedTableFactory(table));
  return options;
}

struct Database {
  std::unique_ptr<DB> db;
  // Families 0 and 1.
  ColumnFamilyHandle* families[2];
  WriteBatch batch;
  std::vector<const Snapshot*> snapshots;
};

// Reads at the snapshot with this index, or at the end.
ReadOptions At(const Database& database, size_t snapshot) {
  ReadOptions options;
  options.snapshot = snapshot < database.snapshots.size() ? database.snapshots[snapshot] : nullptr;
  return options;
}

struct Reader {
  explicit Reader(const Options& options) : file(options) {}
  SstFileReader file;
};

}  // namespace

extern "C" {

void* peers_db_open(const char* folder, const TableFileOptions* wanted) {
  auto* database = new Database;
  Must(DB::Open(Filled(*wanted), folder, &database->db), "open a database");
  database->families[0] = database->db->DefaultColumnFamily();
  Must(database->db->CreateColumnFamily(Filled(*wanted), "second", &database->families[1]), "create a family");
  return database;
}

void peers_db_free(void* opaque) {
  auto* database = static_cast<Database*>(opaque);
  for (const Snapshot* snapshot : database->snapshots) {
    database->db->ReleaseSnapshot(snapshot);
  }
  Must(database->db->DestroyColumnFamilyHandle(database->families[1]), "let a family go");
  delete database;
}

// Sequence numbers count up from 1 in a new database.
void peers_db_put(void* opaque, const Entries* entries) {
  auto* database = static_cast<Database*>(opaque);
  WriteOptions options;
  options.disableWAL = true;
  for (size_t from = 0; from < entries->count; from += kBatch) {
    WriteBatch batch;
    for (size_t at = from; at < std::min(from + kBatch, entries->count); at++) {
      batch.Put(Bytes(entries->keys + at * entries->key_len, entries->key_len),
                Bytes(entries->values + at * entries->value_len, entries->value_len));
    }
    Must(database->db->Write(options, &batch), "write");
  }
}

// Adds an operation of RocksDB's kind to the next batch: 0 delete, 1 put, 2 merge, 7 single delete, 15 range delete (`value`: the end).
void peers_db_add(void* opaque, uint8_t family, uint8_t kind, const uint8_t* key, size_t key_len,
                  const uint8_t* value, size_t value_len) {
  auto* database = static_cast<Database*>(opaque);
  Slice name = Bytes(key, key_len), bytes = Bytes(value, value_len);
  WriteBatch& batch = database->batch;
  ColumnFamilyHandle* of = database->families[family];
  switch (kind) {
    case 0:
      Must(batch.Delete(of, name), "delete");
      break;
    case 1:
      Must(batch.Put(of, name, bytes), "put");
      break;
    case 2:
      Must(batch.Merge(of, name, bytes), "merge");
      break;
    case 7:
      Must(batch.SingleDelete(of, name), "single delete");
      break;
    default:
      Must(batch.DeleteRange(of, name, bytes), "delete a range");
  }
}

// Writes the batch and begins another one. Passes its bytes, with its first number, to the caller. A snapshot keeps older versions.
void peers_db_write(void* opaque, uint8_t snapshot, void* context, void (*take)(void*, const char*, size_t)) {
  auto* database = static_cast<Database*>(opaque);
  WriteOptions options;
  options.disableWAL = true;
  Must(database->db->Write(options, &database->batch), "write");
  if (snapshot != 0) {
    database->snapshots.push_back(database->db->GetSnapshot());
  }
  take(context, database->batch.Data().data(), database->batch.Data().size());
  database->batch.Clear();
}

void peers_db_flush(void* opaque) {
  Must(static_cast<Database*>(opaque)->db->Flush(FlushOptions()), "flush");
}

void peers_db_ingest(void* opaque, const char* path, uint8_t db_generated) {
  IngestExternalFileOptions options;
  options.allow_db_generated_files = db_generated != 0;
  options.verify_checksums_before_ingest = true;
  options.fill_cache = false;
  Must(static_cast<Database*>(opaque)->db->IngestExternalFile({path}, options), path);
}

// Whether the key has a value at a snapshot, and the value's hash.
uint8_t peers_db_get(void* opaque, uint8_t family, size_t snapshot, const uint8_t* key, size_t key_len, uint64_t* hash) {
  auto* database = static_cast<Database*>(opaque);
  std::string value;
  Status status = database->db->Get(At(*database, snapshot), database->families[family], Bytes(key, key_len), &value);
  if (status.IsNotFound()) {
    return 0;
  }
  Must(status, "get");
  *hash = Fnv(kFnvBasis, value);
  return 1;
}

// The hash of all keys and values of a family at a snapshot.
uint64_t peers_db_scan(void* opaque, uint8_t family, size_t snapshot) {
  auto* database = static_cast<Database*>(opaque);
  std::unique_ptr<Iterator> at(database->db->NewIterator(At(*database, snapshot), database->families[family]));
  uint64_t hash = kFnvBasis;
  for (at->SeekToFirst(); at->Valid(); at->Next()) {
    hash = Fnv(Fnv(hash, at->key()), at->value());
  }
  Must(at->status(), "iterate");
  return hash;
}

void* peers_reader_open(const char* path, const TableFileOptions* wanted) {
  auto* reader = new Reader(Filled(*wanted));
  Must(reader->file.Open(path), path);
  return reader;
}

void peers_reader_free(void* opaque) { delete static_cast<Reader*>(opaque); }

// Verifies every block and the number of entries, and folds every entry as it is stored.
uint64_t peers_reader_all(void* opaque, uint64_t* count) {
  SstFileReader& file = static_cast<Reader*>(opaque)->file;
  Must(file.VerifyChecksum(), "verify");
  Must(file.VerifyNumEntries(ReadOptions()), "count");
  uint64_t hash = kFnvBasis;
  *count = 0;
  auto at = file.NewTableIterator();
  for (at->SeekToFirst(); at->Valid(); at->Next()) {
    hash = Fnv(Fnv(hash, at->key()), at->value());
    *count += 1;
  }
  Must(at->status(), "iterate");
  return hash;
}

// Gets of `count` keys of one length; absent ones do not change the hash.
uint64_t peers_reader_get(void* opaque, const uint8_t* keys, size_t key_len, size_t count) {
  SstFileReader& file = static_cast<Reader*>(opaque)->file;
  ReadOptions options;
  std::string value;
  uint64_t hash = 0;
  for (size_t at = 0; at < count; at++) {
    Status status = file.Get(options, Bytes(keys + at * key_len, key_len), &value);
    if (status.ok()) {
      hash = Fold(hash, value);
    } else if (!status.IsNotFound()) {
      Must(status, "get");
    }
  }
  return hash;
}

// Every entry as it is stored.
uint64_t peers_reader_scan(void* opaque) {
  auto at = static_cast<Reader*>(opaque)->file.NewTableIterator();
  uint64_t hash = 0;
  for (at->SeekToFirst(); at->Valid(); at->Next()) {
    hash = Fold(hash, at->value());
  }
  Must(at->status(), "iterate");
  return hash;
}

}  // extern "C"
