/* Preloaded into a Redis server: writes down what of its data directory a power cut would leave.
 *
 * A file's bytes are safe as far as it was long when an fsync or fdatasync of it began, once that has returned. A create, a rename or
 * an unlink is safe once its directory has been fsynced. Nothing else is believed: not close, not sync_file_range, not time.
 *
 * The journal (POWERCUT_JOURNAL) gets one line for each event, in one write, so that the lines of threads and of the child that
 * rewrites the append-only file do not mix. What an unlink or a rename takes away is first linked into POWERCUT_SHADOW: the harness can
 * put it back, and its inode's number is not given out again.
 *
 *   sync <inode> <bytes>      dirsync <inode>      create <path>      rename <from> <to> <saved, or ->      unlink <path> <saved>
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int journal = -1;
static const char *shadow;
static atomic_uint saved_files;

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("POWERCUT_JOURNAL");
    shadow = getenv("POWERCUT_SHADOW");
    if (path && shadow) journal = REAL(open)(path, O_WRONLY | O_APPEND | O_CLOEXEC);
    if (journal < 0) abort();
}

static void note(const char *format, ...) {
    char line[8192];
    int before = errno;
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    if (length < 0 || length >= (int)sizeof line || write(journal, line, length) != length) abort();
    errno = before;
}

/* What is at `path`, under a name in the shadow directory; "-" when nothing is there. */
static const char *save(const char *path, char *name, size_t size) {
    int before = errno;
    snprintf(name, size, "%s/%d-%u", shadow, getpid(), atomic_fetch_add(&saved_files, 1));
    if (link(path, name) != 0) snprintf(name, size, "-");
    errno = before;
    return name;
}

static int synced(int fd, int (*sync)(int)) {
    struct stat file;
    int known = fstat(fd, &file) == 0;
    int answer = sync(fd);
    if (answer == 0 && known && S_ISREG(file.st_mode)) note("sync %lu %ld\n", (unsigned long)file.st_ino, (long)file.st_size);
    if (answer == 0 && known && S_ISDIR(file.st_mode)) note("dirsync %lu\n", (unsigned long)file.st_ino);
    return answer;
}

int fsync(int fd) { return synced(fd, REAL(fsync)); }
int fdatasync(int fd) { return synced(fd, REAL(fdatasync)); }

static int is_new(const char *path) {
    struct stat file;
    int before = errno, missing = lstat(path, &file) != 0 && errno == ENOENT;
    errno = before;
    return missing;
}

#define OPEN(name)                                                                                                                    \
    int name(const char *path, int flags, ...) {                                                                                      \
        va_list arguments;                                                                                                            \
        va_start(arguments, flags);                                                                                                   \
        mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(arguments, mode_t) : 0;                                                  \
        va_end(arguments);                                                                                                            \
        int creates = (flags & O_CREAT) && is_new(path);                                                                              \
        int fd = REAL(name)(path, flags, mode);                                                                                       \
        if (fd >= 0 && creates) note("create %s\n", path);                                                                            \
        return fd;                                                                                                                    \
    }
OPEN(open)
OPEN(open64)

#define FOPEN(name)                                                                                                                   \
    FILE *name(const char *path, const char *mode) {                                                                                  \
        int creates = *mode != 'r' && is_new(path);                                                                                   \
        FILE *file = REAL(name)(path, mode);                                                                                          \
        if (file && creates) note("create %s\n", path);                                                                               \
        return file;                                                                                                                  \
    }
FOPEN(fopen)
FOPEN(fopen64)

int rename(const char *from, const char *to) {
    char name[4096];
    save(to, name, sizeof name);
    int answer = REAL(rename)(from, to);
    if (answer == 0) note("rename %s %s %s\n", from, to, name);
    return answer;
}

int unlink(const char *path) {
    char name[4096];
    save(path, name, sizeof name);
    int answer = REAL(unlink)(path);
    if (answer == 0) note("unlink %s %s\n", path, name);
    return answer;
}
