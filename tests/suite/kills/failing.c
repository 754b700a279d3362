/* Lets calls on files fail: those from number FAIL_FROM on, FAIL_CALLS of them, as on a full or a broken device. With FAIL_FOR_WANT_OF=room
   as on a full one; with =descriptors only calls that open something count and fail. To be preloaded. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

static atomic_long calls;

static long number(const char *name) {
    const char *text = getenv(name);
    return text ? atol(text) : -1;
}

static int wants(const char *what) {
    const char *text = getenv("FAIL_FOR_WANT_OF");
    return text && strcmp(text, what) == 0;
}

static int is_due(int error) {
    long from = number("FAIL_FROM"), call = atomic_fetch_add(&calls, 1);
    if (from < 0 || call < from || call >= from + number("FAIL_CALLS")) return 0;
    errno = error ? error : call % 2 ? EIO : ENOSPC;
    return 1;
}

static int fails(void) {
    if (wants("descriptors")) return 0;
    return is_due(wants("room") ? ENOSPC : 0);
}

static int fails_to_open(int flags) {
    if (wants("descriptors")) return is_due(EMFILE);
    return flags & O_CREAT && fails();
}

static int is_regular(int file) {
    struct stat about;
    return file > 2 && fstat(file, &about) == 0 && S_ISREG(about.st_mode);
}

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

ssize_t write(int file, const void *bytes, size_t len) {
    if (is_regular(file) && fails()) {
        /* Writes a part; the rest fails if the next call does. */
        if (len < 2 || errno == EIO) return -1;
        return NEXT(write)(file, bytes, len / 2);
    }
    return NEXT(write)(file, bytes, len);
}

int fsync(int file) { return fails() ? -1 : NEXT(fsync)(file); }
int fdatasync(int file) { return fails() ? -1 : NEXT(fdatasync)(file); }
int ftruncate64(int file, off64_t len) { return fails() ? -1 : NEXT(ftruncate64)(file, len); }
int rename(const char *from, const char *to) { return fails() ? -1 : NEXT(rename)(from, to); }
int unlink(const char *path) { return !wants("room") && fails() ? -1 : NEXT(unlink)(path); }

int open64(const char *path, int flags, ...) {
    va_list rest;
    va_start(rest, flags);
    mode_t mode = flags & O_CREAT ? va_arg(rest, mode_t) : 0;
    va_end(rest);
    return fails_to_open(flags) ? -1 : NEXT(open64)(path, flags, mode);
}
