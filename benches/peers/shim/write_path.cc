// C functions over RocksDB's whole write path: DB::Write into a memtable that is never flushed.
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

#include "rocksdb/db.h"
#include "rocksdb/options.h"
#include "rocksdb/write_batch.h"

using namespace ROCKSDB_NAMESPACE;

namespace {

void Demand(const Status& status, const char* what) {
  if (!status.ok()) {
    fprintf(stderr, "%s: %s\n", what, status.ToString().c_str());
    abort();
  }
}

Slice Part(const uint8_t* bytes, size_t len, size_t at) {
  return Slice(reinterpret_cast<const char*>(bytes) + at * len, len);
}

// Folds a value of at least 8 bytes, by the same function as in Rust.
uint64_t Folded(uint64_t hash, const std::string& value) {
  uint64_t first, last;
  std::memcpy(&first, value.data(), 8);
  std::memcpy(&last, value.data() + value.size() - 8, 8);
  return (hash << 7 | hash >> 57) ^ first ^ (last << 32 | last >> 32);
}

struct Written {
  std::vector<std::unique_ptr<WriteBatch>> batches;
};

}  // namespace

extern "C" {

void* peers_path_open(const char* folder, uint64_t write_buffer_size, uint8_t protection) {
  Options options;
  options.create_if_missing = true;
  options.write_buffer_size = write_buffer_size;
  options.disable_auto_compactions = true;
  options.avoid_flush_during_shutdown = true;
  options.stats_dump_period_sec = 0;
  options.stats_persist_period_sec = 0;
  options.memtable_protection_bytes_per_key = protection;
  std::unique_ptr<DB> db;
  Demand(DB::Open(options, folder, &db), "open a database");
  return db.release();
}

void peers_path_free(void* db) { delete static_cast<DB*>(db); }

// Batches of this many entries, with or without digests.
void* peers_path_batches(const uint8_t* keys, size_t key_len, const uint8_t* values, size_t value_len, size_t count,
                         size_t batch, uint8_t protection) {
  auto written = std::make_unique<Written>();
  for (size_t from = 0; from < count; from += batch) {
    auto made = std::make_unique<WriteBatch>(0, 0, protection, 0);
    for (size_t at = from; at < std::min(from + batch, count); at++) {
      Demand(made->Put(Part(keys, key_len, at), Part(values, value_len, at)), "put");
    }
    written->batches.push_back(std::move(made));
  }
  return written.release();
}

void peers_path_batches_free(void* batches) { delete static_cast<Written*>(batches); }

// `logged`: each write is in the log's file before it returns, without a sync.
void peers_path_write(void* db, void* batches, uint8_t logged) {
  WriteOptions options;
  options.disableWAL = logged == 0;
  for (const auto& batch : static_cast<Written*>(batches)->batches) {
    Demand(static_cast<DB*>(db)->Write(options, batch.get()), "write");
  }
}

// Batches of this many entries, each made in the memory of the one before it and then written. `log`: 0 none, 1 each write
// is in the log's file before it returns, 2 it is synced.
void peers_path_put(void* db, const uint8_t* keys, size_t key_len, const uint8_t* values, size_t value_len,
                    size_t count, size_t batch, uint8_t protection, uint8_t log) {
  WriteOptions options;
  options.disableWAL = log == 0;
  options.sync = log == 2;
  WriteBatch made(0, 0, protection, 0);
  for (size_t from = 0; from < count; from += batch) {
    made.Clear();
    for (size_t at = from; at < std::min(from + batch, count); at++) {
      Demand(made.Put(Part(keys, key_len, at), Part(values, value_len, at)), "put");
    }
    Demand(static_cast<DB*>(db)->Write(options, &made), "write");
  }
}

// The hash of the newest values of `count` keys; an absent one adds 1.
uint64_t peers_path_get(void* db, const uint8_t* keys, size_t key_len, size_t count) {
  ReadOptions options;
  std::string value;
  uint64_t hash = 0;
  for (size_t at = 0; at < count; at++) {
    const Status status = static_cast<DB*>(db)->Get(options, Part(keys, key_len, at), &value);
    if (!status.IsNotFound()) Demand(status, "get");
    hash = status.ok() ? Folded(hash, value) : hash + 1;
  }
  return hash;
}

}  // extern "C"
