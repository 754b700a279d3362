/* Makes a database by the C functions of a RocksDB or a LevelDB of any age. Its only table file has every version that was
 * written.
 *
 *   history LIBRARY rocksdb FOLDER OPTIONS   < operations    options of a database: `compression=..;..`
 *   history LIBRARY leveldb FOLDER OPTIONS   < operations    `snappy`, `filter`, both or neither
 *
 * An operation is a letter, a key and a value, in hexadecimal digits after one space each, one operation a line: P put,
 * M merge, D delete, S single delete, R delete of the range from the key to the value. The first has sequence number 1.
 * cc -o history history.c -ldl; headers are not needed. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void *library;
static const char *prefix;

static void fail(const char *what) {
    fprintf(stderr, "%s\n", what);
    exit(1);
}

static void check(char *error) {
    if (error) fail(error);
}

static void *symbol(const char *name) {
    char full[200];
    snprintf(full, sizeof full, "%s_%s", prefix, name);
    void *found = dlsym(library, full);
    if (!found) fail(full);
    return found;
}

/* Calls a function of the library: its result, its name, the types of its arguments, the arguments. */
#define CALL(result, name, types, ...) ((result(*) types)symbol(name))(__VA_ARGS__)

static void *make(const char *name) { return CALL(void *, name, (void)); }

static void *options_of(const char *text) {
    void *base = make("options_create"), *options = base;
    if (strcmp(prefix, "rocksdb") == 0) {
        char *error = NULL;
        options = make("options_create");
        CALL(void, "get_options_from_string", (void *, const char *, void *, char **), base, text, options, &error);
        check(error);
        CALL(void, "options_set_uint64add_merge_operator", (void *), options);
    } else {
        CALL(void, "options_set_compression", (void *, int), options, strstr(text, "snappy") != NULL);
        CALL(void, "options_set_block_size", (void *, size_t), options, 256);
        if (strstr(text, "filter")) {
            void *policy = CALL(void *, "filterpolicy_create_bloom", (int), 10);
            CALL(void, "options_set_filter_policy", (void *, void *), options, policy);
        }
    }
    CALL(void, "options_set_create_if_missing", (void *, unsigned char), options, 1);
    return options;
}

static void *open_in(void *options, const char *folder) {
    char *error = NULL;
    void *database = CALL(void *, "open", (void *, const char *, char **), options, folder, &error);
    check(error);
    return database;
}

/* The bytes of a field that begins at `text`; `text` is moved to the next one. */
static char *field(char **text, size_t *len) {
    char *bytes = calloc(1, strlen(*text) + 1);
    unsigned byte;
    if (**text == ' ') ++*text;
    for (*len = 0; sscanf(*text, "%2x", &byte) == 1 && **text != ' '; *text += 2) bytes[(*len)++] = (char)byte;
    return bytes;
}

static void add(void *batch, char *line) {
    typedef const char *bytes;
    size_t key_len, value_len;
    char *rest = line + 1, *key = field(&rest, &key_len), *value = field(&rest, &value_len);
#define WITH_VALUE(name) \
    CALL(void, name, (void *, bytes, size_t, bytes, size_t), batch, key, key_len, value, value_len)
#define WITHOUT(name) CALL(void, name, (void *, bytes, size_t), batch, key, key_len)
    switch (*line) {
        case 'P': WITH_VALUE("writebatch_put"); break;
        case 'M': WITH_VALUE("writebatch_merge"); break;
        case 'R': WITH_VALUE("writebatch_delete_range"); break;
        case 'D': WITHOUT("writebatch_delete"); break;
        case 'S': WITHOUT("writebatch_singledelete"); break;
        default: fail("no such operation");
    }
    free(key), free(value);
}

int main(int count, char **arguments) {
    if (count != 5) fail("history LIBRARY rocksdb|leveldb FOLDER OPTIONS");
    alarm(300);
    prefix = arguments[2];
    /* Lazily, because a library may name functions of an allocator that is missing here. */
    library = dlopen(arguments[1], RTLD_LAZY);
    if (!library) fail(dlerror());
    void *options = options_of(arguments[4]), *database = open_in(options, arguments[3]);
    void *write = make("writeoptions_create");
    static char line[1 << 20];
    char *error = NULL;
    while (fgets(line, sizeof line, stdin)) {
        void *batch = make("writebatch_create");
        add(batch, line);
        CALL(void, "write", (void *, void *, void *, char **), database, write, batch, &error), check(error);
        CALL(void, "writebatch_destroy", (void *), batch);
        /* A version that a snapshot sees stays through a flush. */
        if (strcmp(prefix, "rocksdb") == 0) (void)CALL(const void *, "create_snapshot", (void *), database);
    }
    if (strcmp(prefix, "rocksdb") == 0) {
        CALL(void, "flush", (void *, void *, char **), database, make("flushoptions_create"), &error), check(error);
    } else {
        /* Its log becomes a table when the database is opened again. */
        CALL(void, "close", (void *), database);
        database = open_in(options, arguments[3]);
    }
    CALL(void, "close", (void *), database);
    return 0;
}
