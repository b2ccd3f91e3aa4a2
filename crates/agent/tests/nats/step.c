/* Preloaded into a process, it adds STEP_NS to a clock at each SIGUSR1: its steady clock, or CLOCK_REALTIME if STEP_WALL is set. */
#include <signal.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define SECOND 1000000000LL

static _Atomic long long ahead_ns;
static long long step_ns;
static clockid_t stepped = CLOCK_MONOTONIC;

static void step(int number)
{
	(void)number;
	ahead_ns += step_ns;
}

__attribute__((constructor)) static void begin(void)
{
	const char *text = getenv("STEP_NS");

	if (text == NULL)
		return;
	step_ns = atoll(text);
	if (getenv("STEP_WALL") != NULL)
		stepped = CLOCK_REALTIME;
	signal(SIGUSR1, step);
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
	long failed = syscall(SYS_clock_gettime, clock, now);

	if (failed == 0 && clock == stepped) {
		long long ns = now->tv_nsec + ahead_ns;

		now->tv_sec += ns / SECOND;
		now->tv_nsec = ns % SECOND;
	}
	return (int)failed;
}
