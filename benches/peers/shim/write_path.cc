// RocksDB's whole write path behind a flat C face: DB::Write into a memtable that is never flushed.
//
// A status that is not the expected one ends the process: a benchmark of wrong answers is worth nothing.

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
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

// Batches of so many entries, with or without digests.
void* peers_path_batches(const uint8_t* keys, size_t key_len, const uint8_t* values, size_t value_len, size_t count,
                         size_t batch, uint8_t protection) {
  auto written = std::make_unique<Written>();
  for (size_t from = 0; from < count; from += batch) {
    auto made = std::make_unique<WriteBatch>(0, 0, protection, 0);
    for (size_t at = from; at < std::min(from + batch, count); at++) {
      Demand(made->Put(Slice(reinterpret_cast<const char*>(keys + at * key_len), key_len),
                       Slice(reinterpret_cast<const char*>(values + at * value_len), value_len)),
             "put");
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

}  // extern "C"
