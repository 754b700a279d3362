/* Writes a table file by the C functions of a RocksDB of any age, or ingests one and gets every key.
 *
 *   rocksdb LIBRARY write FILE OPTIONS   < keys    options of block-based tables: `format_version=4;..`
 *   rocksdb LIBRARY get FOLDER FILE      < keys    prints a letter per key: + found, - absent, ! another value
 *
 * Keys come as hexadecimal digits, one a line; the value of a key is the key. After `get` a second line has the number
 * of keys that the filter alone denied. cc -o rocksdb rocksdb.c -ldl; RocksDB's headers are not needed. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Every call is made through a pointer of this name. */
#define API(result, name, ...) static result (*name)(__VA_ARGS__)
API(void *, rocksdb_options_create, void);
API(void, rocksdb_options_set_create_if_missing, void *, unsigned char);
API(void, rocksdb_options_enable_statistics, void *);
API(char *, rocksdb_options_statistics_get_string, void *);
/* The filter is set by its name: the C functions of RocksDB 5 cannot make a full one. */
API(void, rocksdb_get_options_from_string, void *, const char *, void *, char **);
API(void *, rocksdb_open, void *, const char *, char **);
API(void, rocksdb_close, void *);
API(void *, rocksdb_ingestexternalfileoptions_create, void);
API(void, rocksdb_ingest_external_file, void *, const char *const *, size_t, void *, char **);
API(void *, rocksdb_readoptions_create, void);
API(char *, rocksdb_get, void *, void *, const char *, size_t, size_t *, char **);
API(void *, rocksdb_envoptions_create, void);
API(void *, rocksdb_sstfilewriter_create, void *, void *);
API(void, rocksdb_sstfilewriter_open, void *, const char *, char **);
API(void, rocksdb_sstfilewriter_put, void *, const char *, size_t, const char *, size_t, char **);
API(void, rocksdb_sstfilewriter_finish, void *, char **);

static void fail(const char *what) {
    fprintf(stderr, "%s\n", what);
    exit(1);
}

static void check(char *error) {
    if (error) fail(error);
}

static void *symbol(void *library, const char *name) {
    void *found = dlsym(library, name);
    if (!found) fail(name);
    return found;
}

static void load(const char *path) {
    /* Lazily, because a library may name functions of an allocator that is missing here. */
    void *library = dlopen(path, RTLD_LAZY);
    if (!library) fail(dlerror());
#define LOAD(name) *(void **)&name = symbol(library, #name)
    LOAD(rocksdb_options_create), LOAD(rocksdb_options_set_create_if_missing);
    LOAD(rocksdb_options_enable_statistics), LOAD(rocksdb_options_statistics_get_string);
    LOAD(rocksdb_get_options_from_string), LOAD(rocksdb_open), LOAD(rocksdb_close);
    LOAD(rocksdb_ingestexternalfileoptions_create), LOAD(rocksdb_ingest_external_file);
    LOAD(rocksdb_readoptions_create), LOAD(rocksdb_get), LOAD(rocksdb_envoptions_create);
    LOAD(rocksdb_sstfilewriter_create), LOAD(rocksdb_sstfilewriter_open), LOAD(rocksdb_sstfilewriter_put);
    LOAD(rocksdb_sstfilewriter_finish);
}

static void *options_with(const char *table) {
    char text[200], *error = NULL;
    void *base = rocksdb_options_create(), *options = rocksdb_options_create();
    snprintf(text, sizeof text,
             "compression=kNoCompression;block_based_table_factory={%s}", table);
    rocksdb_get_options_from_string(base, text, options, &error), check(error);
    rocksdb_options_set_create_if_missing(options, 1);
    rocksdb_options_enable_statistics(options);
    return options;
}

static char key[1 << 16];

/* The length of the next key; -1 at the end. */
static long next_key(void) {
    static char line[2 * sizeof key + 2];
    long len = 0;
    unsigned byte;
    if (!fgets(line, sizeof line, stdin)) return -1;
    for (char *at = line; sscanf(at, "%2x", &byte) == 1; at += 2) key[len++] = (char)byte;
    return len;
}

static void write_file(const char *path, const char *table) {
    char *error = NULL;
    void *writer = rocksdb_sstfilewriter_create(rocksdb_envoptions_create(), options_with(table));
    rocksdb_sstfilewriter_open(writer, path, &error), check(error);
    for (long len; (len = next_key()) >= 0;)
        rocksdb_sstfilewriter_put(writer, key, len, key, len, &error), check(error);
    rocksdb_sstfilewriter_finish(writer, &error), check(error);
}

static void get_all(const char *folder, const char *file) {
    char *error = NULL;
    void *options = options_with("filter_policy=bloomfilter:10:false"), *read = rocksdb_readoptions_create();
    void *database = rocksdb_open(options, folder, &error);
    check(error);
    void *ingest = rocksdb_ingestexternalfileoptions_create();
    rocksdb_ingest_external_file(database, &file, 1, ingest, &error), check(error);
    for (long len; (len = next_key()) >= 0;) {
        size_t found_len = 0;
        char *found = rocksdb_get(database, read, key, len, &found_len, &error);
        check(error);
        int right = found && found_len == (size_t)len && memcmp(found, key, len) == 0;
        putchar(!found ? '-' : right ? '+' : '!');
        free(found);
    }
    long denied;
    const char *useful = strstr(rocksdb_options_statistics_get_string(options), "rocksdb.bloom.filter.useful");
    if (!useful || sscanf(useful, "%*s COUNT : %ld", &denied) != 1) fail("no statistics");
    printf("\n%ld\n", denied);
    rocksdb_close(database);
}

int main(int count, char **arguments) {
    if (count != 5) fail("rocksdb LIBRARY write FILE OPTIONS | rocksdb LIBRARY get FOLDER FILE");
    alarm(300);
    load(arguments[1]);
    if (strcmp(arguments[2], "write") == 0) write_file(arguments[3], arguments[4]);
    else get_all(arguments[3], arguments[4]);
    return 0;
}
