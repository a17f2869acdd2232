/* Shifts the wall clock of one process: preloaded into a server under test.
 *
 * The file that LEASEHOLD_CLOCK_FILE names holds four i64: a shift in nanoseconds, where the clock stands (0: it goes), and how
 * many parts per million it gains since which nanosecond. Whoever writes there steps the clock, stops it, or has it run fast. Times
 * come from raw system calls: a server's allocator may ask for the time before its C library is ready. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

struct told {
  int64_t shift_ns, stands_ns, gain_ppm, since_ns;
};
static const volatile struct told *told;

static int64_t moved(int64_t ns) {
  static int looked;
  if (!looked) {
    looked = 1;
    const char *path = getenv("LEASEHOLD_CLOCK_FILE");
    int fd = path ? (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0) : -1;
    if (fd >= 0) {
      void *map = mmap(0, sizeof *told, PROT_READ, MAP_SHARED, fd, 0);
      if (map != MAP_FAILED) told = map;
      syscall(SYS_close, fd);
    }
  }
  if (!told) return ns;
  int64_t stands_ns = told->stands_ns;
  if (stands_ns) return stands_ns;
  return ns + told->shift_ns + (ns - told->since_ns) / 1000000 * told->gain_ppm;
}

static void move(struct timespec *time) {
  int64_t ns = moved((int64_t)time->tv_sec * 1000000000 + time->tv_nsec);
  time->tv_sec = ns / 1000000000;
  time->tv_nsec = ns % 1000000000;
}

int clock_gettime(clockid_t id, struct timespec *time) {
  int failed = (int)syscall(SYS_clock_gettime, id, time);
  if (!failed && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)) move(time);
  return failed;
}

int gettimeofday(struct timeval *restrict time, void *restrict zone) {
  (void)zone;
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  time->tv_sec = now.tv_sec;
  time->tv_usec = now.tv_nsec / 1000;
  return 0;
}

time_t time(time_t *out) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (out) *out = now.tv_sec;
  return now.tv_sec;
}
