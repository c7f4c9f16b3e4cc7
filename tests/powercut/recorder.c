/* Records what a process does to the files below one folder, in order, with the data.
 *
 * Preloaded (LD_PRELOAD). Each call that changes a file, a name, or flushes one becomes a record in
 * the trace, which disk.py reads. Calls that change something happen under one lock with their
 * record, so the order of the trace is the order in which they happened. A flush is two records:
 * what was written before the first is on the disk when the second is there.
 *
 * Recording begins with recorder_start, or with the process where RECORDER_ROOT is set.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum op {
  OPEN = 1, WRITE, TRUNCATE, FLUSH, FLUSHED, SYNCED, RENAME, UNLINK, MKDIR, RMDIR, LINK, CLOSE,
  MAPPED, MARK
};

struct record {
  uint32_t magic, op, handle, flags, path, path2;
  uint64_t offset, extra, data;
};

#define MAGIC 0x7472436f
#define MOST 65536

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char root[PATH_MAX];
static size_t root_size;
static int trace = -1;
static uint32_t next_handle = 1;
static uint64_t next_flush = 1;
static uint32_t handles[MOST]; /* of the files below the root that are open */
static unsigned char synced[MOST];

static void emit(enum op op, uint32_t handle, uint32_t flags, const char *path, const char *path2,
                 uint64_t offset, uint64_t extra, const struct iovec *data, int count, size_t size) {
  struct record r = {MAGIC, op, handle, flags, path ? strlen(path) : 0, path2 ? strlen(path2) : 0,
                     offset, extra, size};
  struct iovec parts[3 + 64];
  parts[0] = (struct iovec){&r, sizeof r};
  parts[1] = (struct iovec){(void *)path, r.path};
  parts[2] = (struct iovec){(void *)path2, r.path2};
  int n = 3;
  size_t total = sizeof r + r.path + r.path2 + size, left = size;
  for (int i = 0; i < count && left && n < 3 + 64; i++) {
    size_t take = data[i].iov_len < left ? data[i].iov_len : left;
    parts[n++] = (struct iovec){data[i].iov_base, take};
    left -= take;
  }
  if (left || syscall(SYS_writev, trace, parts, n) != (long)total) {
    static const char text[] = "recorder: the trace cannot be written\n";
    syscall(SYS_write, 2, text, sizeof text - 1);
    abort();
  }
}

/* The whole path of a name, "." and ".." left as they are; 0 where it is not below the root. */
static int below(int dir, const char *name, char *out) {
  if (trace < 0 || name == NULL) return 0;
  if (name[0] == '/') {
    if (strlen(name) >= PATH_MAX) return 0;
    strcpy(out, name);
  } else {
    char link[64], base[PATH_MAX];
    if (dir == AT_FDCWD) strcpy(link, "/proc/self/cwd");
    else snprintf(link, sizeof link, "/proc/self/fd/%d", dir);
    ssize_t n = syscall(SYS_readlinkat, AT_FDCWD, link, base, sizeof base - 1);
    if (n < 0) return 0;
    base[n] = 0;
    if (snprintf(out, PATH_MAX, "%s/%s", base, name) >= PATH_MAX) return 0;
  }
  return strncmp(out, root, root_size) == 0 && (out[root_size] == '/' || out[root_size] == 0);
}

static uint32_t handle_of(int fd) { return trace >= 0 && fd >= 0 && fd < MOST ? handles[fd] : 0; }

static int open_below(int dir, const char *name, int flags, mode_t mode) {
  char path[PATH_MAX];
  if (!below(dir, name, path)) {
    int fd = syscall(SYS_openat, dir, name, flags, mode);
    if (fd >= 0 && fd < MOST) handles[fd] = 0;
    return fd;
  }
  pthread_mutex_lock(&lock);
  int fd = syscall(SYS_openat, dir, name, flags, mode), error = errno;
  if (fd >= 0 && fd < MOST) {
    handles[fd] = next_handle++;
    synced[fd] = (flags & (O_DSYNC | O_SYNC)) != 0;
    uint32_t kind = ((flags & O_CREAT) ? 1 : 0) | ((flags & O_TRUNC) ? 2 : 0) |
                    (synced[fd] ? 4 : 0) | ((flags & O_EXCL) ? 8 : 0);
    emit(OPEN, handles[fd], kind, path, NULL, 0, 0, NULL, 0, 0);
  }
  pthread_mutex_unlock(&lock);
  errno = error;
  return fd;
}

#define MODE(flags, last) \
  mode_t mode = 0; \
  if ((flags) & (O_CREAT | __O_TMPFILE)) { \
    va_list list; \
    va_start(list, last); \
    mode = va_arg(list, mode_t); \
    va_end(list); \
  }

int open(const char *name, int flags, ...) {
  MODE(flags, flags)
  return open_below(AT_FDCWD, name, flags, mode);
}
int open64(const char *name, int flags, ...) {
  MODE(flags, flags)
  return open_below(AT_FDCWD, name, flags, mode);
}
int openat(int dir, const char *name, int flags, ...) {
  MODE(flags, flags)
  return open_below(dir, name, flags, mode);
}
int openat64(int dir, const char *name, int flags, ...) {
  MODE(flags, flags)
  return open_below(dir, name, flags, mode);
}
int __open_2(const char *name, int flags) { return open_below(AT_FDCWD, name, flags, 0); }
int __open64_2(const char *name, int flags) { return open_below(AT_FDCWD, name, flags, 0); }
int __openat_2(int dir, const char *name, int flags) { return open_below(dir, name, flags, 0); }
int __openat64_2(int dir, const char *name, int flags) { return open_below(dir, name, flags, 0); }
int creat(const char *name, mode_t mode) {
  return open_below(AT_FDCWD, name, O_CREAT | O_WRONLY | O_TRUNC, mode);
}
int creat64(const char *name, mode_t mode) { return creat(name, mode); }

int close(int fd) {
  uint32_t handle = handle_of(fd);
  if (!handle) return syscall(SYS_close, fd);
  pthread_mutex_lock(&lock);
  handles[fd] = 0;
  emit(CLOSE, handle, 0, NULL, NULL, 0, 0, NULL, 0, 0);
  int result = syscall(SYS_close, fd), error = errno;
  pthread_mutex_unlock(&lock);
  errno = error;
  return result;
}

/* `at` < 0: where the descriptor stands. */
static ssize_t write_below(int fd, const struct iovec *parts, int count, off_t at) {
  uint32_t handle = handle_of(fd);
  if (!handle) {
    if (at < 0) return syscall(SYS_writev, fd, parts, count);
    return syscall(SYS_pwritev, fd, parts, count, at, 0);
  }
  pthread_mutex_lock(&lock);
  ssize_t done = at < 0 ? syscall(SYS_writev, fd, parts, count)
                        : syscall(SYS_pwritev, fd, parts, count, at, 0);
  int error = errno;
  if (done > 0) {
    if (at < 0) at = syscall(SYS_lseek, fd, 0, SEEK_CUR) - done;
    emit(WRITE, handle, 0, NULL, NULL, at, 0, parts, count, done);
    if (synced[fd]) emit(SYNCED, handle, 0, NULL, NULL, at, done, NULL, 0, 0);
  }
  pthread_mutex_unlock(&lock);
  errno = error;
  return done;
}

ssize_t write(int fd, const void *data, size_t size) {
  if (!handle_of(fd)) return syscall(SYS_write, fd, data, size);
  struct iovec one = {(void *)data, size};
  return write_below(fd, &one, 1, -1);
}
ssize_t writev(int fd, const struct iovec *parts, int count) {
  return write_below(fd, parts, count, -1);
}
ssize_t pwrite(int fd, const void *data, size_t size, off_t at) {
  struct iovec one = {(void *)data, size};
  return write_below(fd, &one, 1, at);
}
ssize_t pwrite64(int fd, const void *data, size_t size, off64_t at) {
  return pwrite(fd, data, size, at);
}
ssize_t pwritev(int fd, const struct iovec *parts, int count, off_t at) {
  return write_below(fd, parts, count, at);
}
ssize_t pwritev64(int fd, const struct iovec *parts, int count, off64_t at) {
  return write_below(fd, parts, count, at);
}
/* Python copies by read and write where these do not work. */
ssize_t sendfile(int out, int in, off_t *at, size_t size) {
  if (!handle_of(out)) return syscall(SYS_sendfile, out, in, at, size);
  errno = EINVAL;
  return -1;
}
ssize_t sendfile64(int out, int in, off64_t *at, size_t size) { return sendfile(out, in, at, size); }
ssize_t copy_file_range(int in, off64_t *from, int out, off64_t *to, size_t size, unsigned flags) {
  if (!handle_of(out)) return syscall(SYS_copy_file_range, in, from, out, to, size, flags);
  errno = EINVAL;
  return -1;
}

int ftruncate(int fd, off_t size) {
  uint32_t handle = handle_of(fd);
  if (!handle) return syscall(SYS_ftruncate, fd, size);
  pthread_mutex_lock(&lock);
  int result = syscall(SYS_ftruncate, fd, size), error = errno;
  if (result == 0) emit(TRUNCATE, handle, 0, NULL, NULL, size, 0, NULL, 0, 0);
  pthread_mutex_unlock(&lock);
  errno = error;
  return result;
}
int ftruncate64(int fd, off64_t size) { return ftruncate(fd, size); }
int truncate(const char *name, off_t size) {
  int fd = open(name, O_WRONLY);
  if (fd < 0) return -1;
  int result = ftruncate(fd, size);
  close(fd);
  return result;
}
int truncate64(const char *name, off64_t size) { return truncate(name, size); }

/* Both flush what is needed to read the data, size and all. */
static int flush(int fd, long call) {
  uint32_t handle = handle_of(fd);
  if (!handle) return syscall(call, fd);
  pthread_mutex_lock(&lock);
  uint64_t ticket = next_flush++;
  emit(FLUSH, handle, 0, NULL, NULL, ticket, 0, NULL, 0, 0);
  pthread_mutex_unlock(&lock);
  int result = syscall(call, fd), error = errno;
  if (result == 0) {
    pthread_mutex_lock(&lock);
    emit(FLUSHED, handle, 0, NULL, NULL, ticket, 0, NULL, 0, 0);
    pthread_mutex_unlock(&lock);
  }
  errno = error;
  return result;
}
int fsync(int fd) { return flush(fd, SYS_fsync); }
int fdatasync(int fd) { return flush(fd, SYS_fdatasync); }

static int rename_below(int dir, const char *from, int dir2, const char *to, unsigned flags) {
  char path[PATH_MAX], path2[PATH_MAX];
  int one = below(dir, from, path), other = below(dir2, to, path2);
  if (!one && !other) return syscall(SYS_renameat2, dir, from, dir2, to, flags);
  pthread_mutex_lock(&lock);
  int result = syscall(SYS_renameat2, dir, from, dir2, to, flags), error = errno;
  if (result == 0) emit(RENAME, 0, flags, path, path2, 0, 0, NULL, 0, 0);
  pthread_mutex_unlock(&lock);
  errno = error;
  return result;
}
int rename(const char *from, const char *to) {
  return rename_below(AT_FDCWD, from, AT_FDCWD, to, 0);
}
int renameat(int dir, const char *from, int dir2, const char *to) {
  return rename_below(dir, from, dir2, to, 0);
}
int renameat2(int dir, const char *from, int dir2, const char *to, unsigned flags) {
  return rename_below(dir, from, dir2, to, flags);
}

static int unlink_below(int dir, const char *name, int flags) {
  char path[PATH_MAX];
  if (!below(dir, name, path)) return syscall(SYS_unlinkat, dir, name, flags);
  pthread_mutex_lock(&lock);
  int result = syscall(SYS_unlinkat, dir, name, flags), error = errno;
  enum op op = (flags & AT_REMOVEDIR) ? RMDIR : UNLINK;
  if (result == 0) emit(op, 0, 0, path, NULL, 0, 0, NULL, 0, 0);
  pthread_mutex_unlock(&lock);
  errno = error;
  return result;
}
int unlink(const char *name) { return unlink_below(AT_FDCWD, name, 0); }
int unlinkat(int dir, const char *name, int flags) { return unlink_below(dir, name, flags); }
int rmdir(const char *name) { return unlink_below(AT_FDCWD, name, AT_REMOVEDIR); }

static int mkdir_below(int dir, const char *name, mode_t mode) {
  char path[PATH_MAX];
  if (!below(dir, name, path)) return syscall(SYS_mkdirat, dir, name, mode);
  pthread_mutex_lock(&lock);
  int result = syscall(SYS_mkdirat, dir, name, mode), error = errno;
  if (result == 0) emit(MKDIR, 0, 0, path, NULL, 0, 0, NULL, 0, 0);
  pthread_mutex_unlock(&lock);
  errno = error;
  return result;
}
int mkdir(const char *name, mode_t mode) { return mkdir_below(AT_FDCWD, name, mode); }
int mkdirat(int dir, const char *name, mode_t mode) { return mkdir_below(dir, name, mode); }

static int link_below(int dir, const char *from, int dir2, const char *to, int flags) {
  char path[PATH_MAX], path2[PATH_MAX];
  int one = below(dir, from, path), other = below(dir2, to, path2);
  if (!one && !other) return syscall(SYS_linkat, dir, from, dir2, to, flags);
  pthread_mutex_lock(&lock);
  int result = syscall(SYS_linkat, dir, from, dir2, to, flags), error = errno;
  if (result == 0) emit(LINK, 0, 0, path, path2, 0, 0, NULL, 0, 0);
  pthread_mutex_unlock(&lock);
  errno = error;
  return result;
}
int link(const char *from, const char *to) { return link_below(AT_FDCWD, from, AT_FDCWD, to, 0); }
int linkat(int dir, const char *from, int dir2, const char *to, int flags) {
  return link_below(dir, from, dir2, to, flags);
}

/* What is written through a map is not seen: the model must know of such files. */
void *mmap(void *where, size_t size, int access, int flags, int fd, off_t at) {
  uint32_t handle = handle_of(fd);
  if (handle && (access & PROT_WRITE) && (flags & MAP_SHARED)) {
    pthread_mutex_lock(&lock);
    emit(MAPPED, handle, 0, NULL, NULL, at, size, NULL, 0, 0);
    pthread_mutex_unlock(&lock);
  }
  return (void *)syscall(SYS_mmap, where, size, access, flags, fd, at);
}
void *mmap64(void *where, size_t size, int access, int flags, int fd, off64_t at) {
  return mmap(where, size, access, flags, fd, at);
}

/* Record what happens below `folder` from now on. 0, or -1 where the trace cannot be opened. */
int recorder_start(const char *folder, const char *file) {
  pthread_mutex_lock(&lock);
  strncpy(root, folder, PATH_MAX - 1);
  root_size = strlen(root);
  memset(handles, 0, sizeof handles);
  trace = syscall(SYS_openat, AT_FDCWD, file, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  pthread_mutex_unlock(&lock);
  return trace < 0 ? -1 : 0;
}
void recorder_stop(void) {
  pthread_mutex_lock(&lock);
  if (trace >= 0) syscall(SYS_close, trace);
  trace = -1;
  pthread_mutex_unlock(&lock);
}
/* A word of the process itself, between what it did. */
void recorder_mark(const char *text, size_t size) {
  struct iovec one = {(void *)text, size};
  pthread_mutex_lock(&lock);
  if (trace >= 0) emit(MARK, 0, 0, NULL, NULL, 0, 0, &one, 1, size);
  pthread_mutex_unlock(&lock);
}

__attribute__((constructor)) static void begin(void) {
  const char *folder = getenv("RECORDER_ROOT"), *file = getenv("RECORDER_TRACE");
  if (folder && file && recorder_start(folder, file) != 0) abort();
}
