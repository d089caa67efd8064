/* Floor of a restart: the death of a forked consumer is known (waitpid returns) until its successor, forked then,
 * has answered a message.  No interpreter, no library, no memory to map again: only what the system charges.
 */
#include "lane.h"

int main(int argc, char **argv)
{
    long count = option_positive(argc, argv, "--count", 10);
    alarm(BENCH_LIMIT_SECONDS);
    int64_t *times = malloc((size_t)count * sizeof *times);
    if (times == NULL) {
        die("malloc");
    }
    struct lane *lane = lane_create(16, 50);
    struct consumer consumer = lane_start(lane, 1);
    lane_await(lane, lane_send(lane, OP_NOOP));
    for (long i = 0; i < count; i++) {
        rest_us(1000);
        kill(consumer.pid, SIGKILL);
        waitpid(consumer.pid, NULL, 0);
        int64_t start = now_ns();
        lane = lane_create(16, 50);
        consumer = lane_start(lane, 1);
        lane_await(lane, lane_send(lane, OP_NOOP));
        times[i] = now_ns() - start;
    }
    lane_stop(lane, consumer);
    print_result("respawn", median_us(times, count), count);
    free(times);
    return 0;
}
