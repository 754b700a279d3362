// C functions over RocksDB's own MemTable.
//
// Every function does a whole slice of work, so that the time of a single operation has no call from Rust.
// Keys and values are flat arrays of equal lengths. What is read is folded into a hash, by the same function as in Rust.
// A status that is not the expected one ends the process: a benchmark of wrong answers is worth nothing.

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "db/dbformat.h"
#include "db/kv_checksum.h"
#include "db/memtable.h"
#include "db/merge_context.h"
#include "db/write_batch_internal.h"
#include "memory/arena.h"
#include "rocksdb/comparator.h"
#include "rocksdb/options.h"
#include "rocksdb/slice_transform.h"
#include "rocksdb/write_buffer_manager.h"
#include "table/format.h"
#include "table/internal_iterator.h"
#include "table/multiget_context.h"

using namespace ROCKSDB_NAMESPACE;

extern "C" {

struct PeersOptions {
  uint64_t write_buffer_size;
  double bloom_ratio;
  uint32_t protection_bytes;
  uint8_t on_seek;
  uint8_t order_checks;
  uint8_t batch_lookup;
  // Several threads insert at once.
  uint8_t concurrent;
};

// `count` entries: keys and values back to back, a sequence number each.
struct PeersEntries {
  const uint8_t* keys;
  const uint8_t* values;
  const uint64_t* sequences;
  size_t key_len;
  size_t value_len;
  size_t count;
};

}  // extern "C"

namespace {

struct Peer {
  explicit Peer(const PeersOptions& wanted)
      : options(Fill(wanted)),
        immutable(options),
        mutable_options(options),
        comparator(BytewiseComparator()),
        buffer(0),
        protection(wanted.protection_bytes),
        concurrent(wanted.concurrent != 0) {
    // The value that a database sets (db/column_family.cc, SanitizeCfOptions).
    mutable_options.arena_block_size = std::min<size_t>(size_t{1} << 20, options.write_buffer_size / 8);
    table = new MemTable(comparator, immutable, mutable_options, &buffer, kMaxSequenceNumber, 0);
    table->Ref();
  }

  ~Peer() { delete table->Unref(); }

  static Options Fill(const PeersOptions& wanted) {
    Options options;
    options.write_buffer_size = wanted.write_buffer_size;
    options.memtable_protection_bytes_per_key = wanted.protection_bytes;
    options.memtable_verify_per_key_checksum_on_seek = wanted.on_seek != 0;
    options.paranoid_memory_checks = wanted.order_checks != 0;
    options.memtable_batch_lookup_optimization = wanted.batch_lookup != 0;
    options.memtable_prefix_bloom_size_ratio = wanted.bloom_ratio;
    options.memtable_whole_key_filtering = wanted.bloom_ratio > 0;
    return options;
  }

  Options options;
  ImmutableOptions immutable;
  MutableCFOptions mutable_options;
  InternalKeyComparator comparator;
  WriteBufferManager buffer;
  uint32_t protection;
  bool concurrent;
  MemTable* table = nullptr;
  bool frozen = false;
};

struct Batches {
  std::vector<std::unique_ptr<WriteBatch>> batches;
  size_t entries = 0;
};

[[noreturn]] void Fail(const char* where, const Status& status) {
  std::fprintf(stderr, "RocksDB: %s: %s\n", where, status.ToString().c_str());
  std::abort();
}

void Expect(const char* where, const Status& status) {
  if (!status.ok()) Fail(where, status);
}

Slice At(const uint8_t* bytes, size_t len, size_t at) {
  return Slice(reinterpret_cast<const char*>(bytes) + at * len, len);
}

uint64_t Rotate(uint64_t word, int by) { return (word << by) | (word >> (64 - by)); }

// Both ends of the value; values have at least 8 bytes.
uint64_t Fold(uint64_t hash, const char* value, size_t len) {
  uint64_t first, last;
  std::memcpy(&first, value, 8);
  std::memcpy(&last, value + len - 8, 8);
  return Rotate(hash, 7) ^ first ^ Rotate(last, 32);
}

// One get at the newest snapshot, with the calls of DBImpl::GetImpl.
uint64_t GetOne(Peer* peer, const ReadOptions& read, const Slice& key, std::string* value, uint64_t hash) {
  LookupKey lookup(key, kMaxSequenceNumber);
  Status status;
  MergeContext merge;
  SequenceNumber covering = 0;
  const bool final_value =
      peer->table->Get(lookup, value, nullptr, nullptr, &status, &merge, &covering, read, peer->frozen);
  if (final_value && status.ok()) return Fold(hash, value->data(), value->size());
  if (final_value && !status.IsNotFound()) Fail("Get", status);
  return hash + 1;
}

void AddOne(Peer* peer, const PeersEntries& entries, size_t at, bool promise, MemTablePostProcessInfo* to) {
  MemTablePostProcessInfo* info = peer->concurrent ? to : nullptr;
  const Slice key = At(entries.keys, entries.key_len, at);
  const Slice value = At(entries.values, entries.value_len, at);
  const SequenceNumber sequence = entries.sequences[at];
  if (promise) {
    const auto protection = ProtectionInfo64().ProtectKVO(key, value, kTypeValue).ProtectS(sequence);
    Expect("Add", peer->table->Add(sequence, kTypeValue, key, value, &protection, peer->concurrent, info));
  } else {
    Expect("Add", peer->table->Add(sequence, kTypeValue, key, value, nullptr, peer->concurrent, info));
  }
}

uint64_t FoldIterator(InternalIterator* iterator, uint64_t hash) {
  const Slice value = iterator->value();
  return Fold(hash, value.data(), value.size());
}

// Releases an iterator that lives in an arena when it goes out of scope.
struct Iterating {
  explicit Iterating(Peer* peer) {
    read.total_order_seek = true;
    iterator.reset(peer->table->NewIterator(read, nullptr, &arena, nullptr, /*for_flush=*/false));
  }
  InternalIterator* operator->() { return iterator.operator->(); }
  InternalIterator* get() { return iterator.get(); }
  Arena arena;
  ReadOptions read;
  ScopedArenaPtr<InternalIterator> iterator;
};

}  // namespace

extern "C" {

void* peers_new(const PeersOptions* options) { return new Peer(*options); }

void peers_free(void* peer) { delete static_cast<Peer*>(peer); }

// Bytes of the arena's blocks, and the part of them that is in use.
void peers_memory(void* peer, uint64_t* allocated, uint64_t* used) {
  MemTable* table = static_cast<Peer*>(peer)->table;
  *allocated = table->MemoryAllocatedBytes();
  *used = table->ApproximateMemoryUsage();
}

// Sizes in the shim of the classes that must be equal in the library.
size_t peers_sizes(uint64_t* sizes, size_t room) {
  const uint64_t all[] = {sizeof(MemTable), sizeof(Options), sizeof(ImmutableOptions), sizeof(MutableCFOptions)};
  const size_t count = sizeof(all) / sizeof(all[0]);
  for (size_t at = 0; at < std::min(count, room); ++at) sizes[at] = all[at];
  return count;
}

uint64_t peers_insert(void* to, const PeersEntries* entries, uint8_t promise) {
  Peer* peer = static_cast<Peer*>(to);
  MemTablePostProcessInfo info;
  for (size_t at = 0; at < entries->count; ++at) {
    AddOne(peer, *entries, at, promise != 0, &info);
  }
  if (peer->concurrent) peer->table->BatchPostProcess(info);
  return entries->count;
}

void* peers_batches_new(const PeersEntries* entries, size_t batch, uint8_t protection) {
  auto made = std::make_unique<Batches>();
  made->entries = entries->count;
  for (size_t begin = 0; begin < entries->count; begin += batch) {
    auto writes = std::make_unique<WriteBatch>(0, 0, protection, 0);
    for (size_t at = begin; at < std::min(begin + batch, entries->count); ++at) {
      Expect("Put", writes->Put(At(entries->keys, entries->key_len, at),
                                At(entries->values, entries->value_len, at)));
    }
    WriteBatchInternal::SetSequence(writes.get(), entries->sequences[begin]);
    made->batches.push_back(std::move(writes));
  }
  return made.release();
}

void peers_batches_free(void* batches) { delete static_cast<Batches*>(batches); }

uint64_t peers_batches_write(void* to, void* batches) {
  Batches* made = static_cast<Batches*>(batches);
  Peer* peer = static_cast<Peer*>(to);
  ColumnFamilyMemTablesDefault tables(peer->table);
  for (const auto& batch : made->batches) {
    Expect("InsertInto", WriteBatchInternal::InsertInto(batch.get(), &tables, nullptr, nullptr, false, 0, nullptr,
                                                        peer->concurrent));
  }
  return made->entries;
}

uint64_t peers_get(void* from, const uint8_t* keys, size_t key_len, size_t count) {
  Peer* peer = static_cast<Peer*>(from);
  ReadOptions read;
  std::string value;
  uint64_t hash = 0;
  for (size_t at = 0; at < count; ++at) hash = GetOne(peer, read, At(keys, key_len, at), &value, hash);
  return hash;
}

// The calls of DBImpl::MultiGetCommon: sorted keys, one context per batch.
uint64_t peers_multi_get(void* from, const uint8_t* keys, size_t key_len, size_t count, size_t batch) {
  Peer* peer = static_cast<Peer*>(from);
  ReadOptions read;
  std::vector<Slice> asked(batch);
  std::vector<PinnableSlice> values(batch);
  std::vector<Status> statuses(batch);
  const Comparator* order = BytewiseComparator();
  uint64_t hash = 0;
  for (size_t begin = 0; begin < count; begin += batch) {
    const size_t here = std::min(batch, count - begin);
    autovector<KeyContext, MultiGetContext::MAX_BATCH_SIZE> contexts;
    autovector<KeyContext*, MultiGetContext::MAX_BATCH_SIZE> sorted;
    contexts.reserve(here);
    sorted.resize(here);
    for (size_t at = 0; at < here; ++at) {
      asked[at] = At(keys, key_len, begin + at);
      values[at].Reset();
      statuses[at] = Status::OK();
      contexts.emplace_back(nullptr, asked[at], &values[at], nullptr, nullptr, &statuses[at]);
    }
    for (size_t at = 0; at < here; ++at) sorted[at] = &contexts[at];
    std::sort(sorted.begin(), sorted.begin() + here, [order](const KeyContext* left, const KeyContext* right) {
      return order->Compare(*left->key, *right->key) < 0;
    });
    MultiGetContext context(&sorted, 0, here, kMaxSequenceNumber, read, nullptr, nullptr);
    MultiGetContext::Range range = context.GetMultiGetRange();
    peer->table->MultiGet(read, &range, nullptr, peer->frozen);
    for (size_t at = 0; at < here; ++at) {
      if (!statuses[at].ok() && !statuses[at].IsNotFound()) Fail("MultiGet", statuses[at]);
      const bool found = statuses[at].ok() && values[at].size() > 0;
      hash = found ? Fold(hash, values[at].data(), values[at].size()) : hash + 1;
    }
  }
  return hash;
}

uint64_t peers_seek(void* from, const uint8_t* keys, size_t key_len, size_t count, size_t steps) {
  Iterating iterator(static_cast<Peer*>(from));
  uint64_t hash = 0;
  std::string target;
  for (size_t at = 0; at < count; ++at) {
    target.clear();
    AppendInternalKey(&target, ParsedInternalKey(At(keys, key_len, at), kMaxSequenceNumber, kValueTypeForSeek));
    iterator->Seek(target);
    for (size_t step = 0; step <= steps && iterator->Valid(); ++step) {
      hash = FoldIterator(iterator.get(), hash);
      iterator->Next();
    }
  }
  Expect("Seek", iterator->status());
  return hash;
}

uint64_t peers_scan(void* from, const uint8_t* key, size_t key_len, size_t steps, uint8_t backward) {
  Iterating iterator(static_cast<Peer*>(from));
  uint64_t hash = 0;
  std::string target;
  const Slice user_key = At(key, key_len, 0);
  if (backward != 0) {
    AppendInternalKey(&target, ParsedInternalKey(user_key, 0, kValueTypeForSeekForPrev));
    iterator->SeekForPrev(target);
  } else {
    AppendInternalKey(&target, ParsedInternalKey(user_key, kMaxSequenceNumber, kValueTypeForSeek));
    iterator->Seek(target);
  }
  for (size_t step = 0; step < steps && iterator->Valid(); ++step) {
    hash = FoldIterator(iterator.get(), hash);
    if (backward != 0) {
      iterator->Prev();
    } else {
      iterator->Next();
    }
  }
  Expect("scan", iterator->status());
  return hash;
}

// After each put, this many gets.
uint64_t peers_mix(void* from, const PeersEntries* entries, const uint8_t* keys, size_t gets) {
  Peer* peer = static_cast<Peer*>(from);
  ReadOptions read;
  MemTablePostProcessInfo info;
  std::string value;
  uint64_t hash = 0;
  for (size_t at = 0; at < entries->count; ++at) {
    AddOne(peer, *entries, at, false, &info);
    for (size_t get = 0; get < gets; ++get) {
      hash = GetOne(peer, read, At(keys, entries->key_len, at * gets + get), &value, hash);
    }
  }
  if (peer->concurrent) peer->table->BatchPostProcess(info);
  return hash;
}

// Range deletes of [starts[i], ends[i]); after each, this many gets.
uint64_t peers_delete_ranges(void* from, const uint8_t* starts, const uint8_t* ends, const uint64_t* sequences,
                             const uint8_t* keys, size_t gets, size_t key_len, size_t count) {
  Peer* peer = static_cast<Peer*>(from);
  ReadOptions read;
  std::string value;
  uint64_t hash = 0;
  for (size_t at = 0; at < count; ++at) {
    Expect("DeleteRange", peer->table->Add(sequences[at], kTypeRangeDeletion, At(starts, key_len, at),
                                           At(ends, key_len, at), nullptr));
    for (size_t get = 0; get < gets; ++get) {
      hash = GetOne(peer, read, At(keys, key_len, at * gets + get), &value, hash);
    }
  }
  return hash;
}

// The functions below are for a subject whose registers were damaged. They return 0, or 1 for an absent key, or 2 for a status
// other than success.

int32_t faults_put(void* to, const PeersEntries* entries, uint8_t promise) {
  Peer* peer = static_cast<Peer*>(to);
  const Slice key = At(entries->keys, entries->key_len, 0);
  const Slice value = At(entries->values, entries->value_len, 0);
  const SequenceNumber sequence = entries->sequences[0];
  ProtectionInfoKVOS64 protection;
  if (promise != 0) protection = ProtectionInfo64().ProtectKVO(key, value, kTypeValue).ProtectS(sequence);
  return peer->table->Add(sequence, kTypeValue, key, value, promise != 0 ? &protection : nullptr).ok() ? 0 : 2;
}

int32_t faults_write(void* to, void* batches) {
  ColumnFamilyMemTablesDefault tables(static_cast<Peer*>(to)->table);
  for (const auto& batch : static_cast<Batches*>(batches)->batches) {
    if (!WriteBatchInternal::InsertInto(batch.get(), &tables, nullptr, nullptr).ok()) return 2;
  }
  return 0;
}

int32_t faults_get(void* from, const uint8_t* key, size_t key_len, void* context,
                   void (*take)(void*, const char*, size_t)) {
  Peer* peer = static_cast<Peer*>(from);
  ReadOptions read;
  LookupKey lookup(At(key, key_len, 0), kMaxSequenceNumber);
  std::string value;
  Status status;
  MergeContext merge;
  SequenceNumber covering = 0;
  const bool is_final =
      peer->table->Get(lookup, &value, nullptr, nullptr, &status, &merge, &covering, read, peer->frozen);
  if (is_final && status.ok()) {
    take(context, value.data(), value.size());
    return 0;
  }
  return status.ok() || status.IsNotFound() ? 1 : 2;
}

int32_t faults_walk(void* from, uint8_t backward, void* context,
                    void (*take)(void*, const char*, size_t, uint64_t, const char*, size_t)) {
  Iterating iterator(static_cast<Peer*>(from));
  for (backward != 0 ? iterator->SeekToLast() : iterator->SeekToFirst(); iterator->Valid();
       backward != 0 ? iterator->Prev() : iterator->Next()) {
    ParsedInternalKey key;
    if (!ParseInternalKey(iterator->key(), &key, false).ok()) return 2;
    const Slice value = iterator->value();
    take(context, key.user_key.data(), key.user_key.size(), key.sequence, value.data(), value.size());
  }
  return iterator->status().ok() ? 0 : 2;
}

// The calls of a switch to a new memtable: fragments are built once, then the table is read as immutable.
void peers_freeze(void* which) {
  Peer* peer = static_cast<Peer*>(which);
  peer->table->ConstructFragmentedRangeTombstones();
  peer->table->MarkImmutable();
  peer->frozen = true;
}

// The sum of the checksums of `count` blocks, `passes` times, in the form of a block trailer; `kind` is the number in a file footer.
uint64_t peers_checksum(uint8_t kind, const uint8_t* data, size_t len, size_t count, size_t passes) {
  uint64_t sum = 0;
  for (size_t pass = 0; pass < passes; ++pass) {
    for (size_t at = 0; at < count; ++at) {
      const Slice block = At(data, len, at);
      sum += ComputeBuiltinChecksum(static_cast<ChecksumType>(kind), block.data(), len);
    }
  }
  return sum;
}

}  // extern "C"
