/* Makes the n-th write, fsync, rename or truncation under one folder fail. Loaded before the C library. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

static char folder[PATH_MAX];
static long at = 0, seen = 0, length = 1;
static int with = EIO, half = 0;

/* From call number n on (counted from 1), `calls` calls fail with `error`; n = 0: none does. */
void taps_fault(const char *under, long n, long calls, int error, int halves) {
  snprintf(folder, sizeof folder, "%s", under);
  __atomic_store_n(&seen, 0, __ATOMIC_SEQ_CST);
  length = calls; with = error; half = halves;
  __atomic_store_n(&at, n, __ATOMIC_SEQ_CST);
}

long taps_seen(void) { return __atomic_load_n(&seen, __ATOMIC_SEQ_CST); }

static int hit(void) {
  long mine = __atomic_add_fetch(&seen, 1, __ATOMIC_SEQ_CST), first = __atomic_load_n(&at, __ATOMIC_SEQ_CST);
  return first && mine >= first && mine < first + length;
}

static int under(const char *path) { return folder[0] && strncmp(path, folder, strlen(folder)) == 0; }

static int ours(int fd) {
  char link[64], path[PATH_MAX];
  if (!folder[0]) return 0;
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t size = readlink(link, path, sizeof path - 1);
  if (size <= 0) return 0;
  path[size] = 0;
  return under(path);
}

#define REAL(name) static __typeof__(&name) real; if (!real) real = (__typeof__(&name))dlsym(RTLD_NEXT, #name)
#define FAIL do { errno = with; return -1; } while (0)

ssize_t write(int fd, const void *data, size_t size) {
  REAL(write);
  if (ours(fd) && hit()) { if (half && size > 1) real(fd, data, size / 2); FAIL; }
  return real(fd, data, size);
}
ssize_t pwrite(int fd, const void *data, size_t size, off_t where) {
  REAL(pwrite);
  if (ours(fd) && hit()) { if (half && size > 1) real(fd, data, size / 2, where); FAIL; }
  return real(fd, data, size, where);
}
ssize_t pwrite64(int fd, const void *data, size_t size, off64_t where) {
  REAL(pwrite64);
  if (ours(fd) && hit()) { if (half && size > 1) real(fd, data, size / 2, where); FAIL; }
  return real(fd, data, size, where);
}
ssize_t writev(int fd, const struct iovec *parts, int count) {
  REAL(writev);
  if (ours(fd) && hit()) FAIL;
  return real(fd, parts, count);
}
int fsync(int fd) { REAL(fsync); if (ours(fd) && hit()) FAIL; return real(fd); }
int fdatasync(int fd) { REAL(fdatasync); if (ours(fd) && hit()) FAIL; return real(fd); }
int ftruncate(int fd, off_t size) { REAL(ftruncate); if (ours(fd) && hit()) FAIL; return real(fd, size); }
int ftruncate64(int fd, off64_t size) { REAL(ftruncate64); if (ours(fd) && hit()) FAIL; return real(fd, size); }
int rename(const char *from, const char *to) { REAL(rename); if (under(to) && hit()) FAIL; return real(from, to); }
int renameat(int a, const char *from, int b, const char *to) {
  REAL(renameat);
  if (under(to) && hit()) FAIL;
  return real(a, from, b, to);
}
