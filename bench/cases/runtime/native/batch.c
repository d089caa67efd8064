/* Twin of batches and of many lanes: send --batch records to each of --lanes consumers in turn, then wait for
 * the last one of every lane.  Prints the time per record, over all lanes.
 *
 * --place threads|processes   where the consumers live
 * --batch K                   records per lane between two waits
 * --lanes L                   consumers, each with its own ring and its own thread or process
 * --spin-us N                 how long either side spins before it sleeps
 * --pin 0|1                   1 (default): sender on one CPU, consumers on the others; 0: wherever the system puts them
 * --warm-ms N                 untimed messages for so long first
 * --count N                   records in all (rounded up to whole batches)
 */
#include "lane.h"

enum { MAX_LANES = 64 };

int main(int argc, char **argv)
{
    int is_process = place_option(argc, argv);
    long batch = option_positive(argc, argv, "--batch", 100);
    long lanes = option_positive(argc, argv, "--lanes", 1);
    long spin_us = option_long(argc, argv, "--spin-us", 50);
    long count = option_positive(argc, argv, "--count", 10000);
    long warm_ms = option_long(argc, argv, "--warm-ms", WARM_MS);
    int pin = option_long(argc, argv, "--pin", 1) != 0;
    if (lanes > MAX_LANES) {
        fprintf(stderr, "--lanes: expected at most %d, got %ld\n", MAX_LANES, lanes);
        return 2;
    }
    alarm(BENCH_LIMIT_SECONDS);
    struct lane *lane[MAX_LANES];
    struct consumer consumer[MAX_LANES];
    uint64_t last[MAX_LANES];
    for (long i = 0; i < lanes; i++) {
        lane[i] = lane_create(batch + 16, spin_us);
        lane[i]->pin = pin ? (int)i + 1 : 0;
    }
    for (long i = 0; i < lanes; i++) {
        consumer[i] = lane_start(lane[i], is_process);
    }
    if (pin) {
        pin_to(0);
    }
    for (long i = 0; i < lanes; i++) {
        lane_warm(lane[i], warm_ms / lanes);
    }
    long rounds = (count + batch * lanes - 1) / (batch * lanes);
    int64_t start = now_ns();
    for (long r = 0; r < rounds; r++) {
        for (long k = 0; k < batch; k++) {
            for (long i = 0; i < lanes; i++) {
                last[i] = lane_send(lane[i], OP_NOOP);
            }
        }
        for (long i = 0; i < lanes; i++) {
            lane_await(lane[i], last[i]);
        }
    }
    long sent = rounds * batch * lanes;
    double us = (double)(now_ns() - start) / 1e3 / (double)sent;
    for (long i = 0; i < lanes; i++) {
        lane_stop(lane[i], consumer[i]);
    }
    print_result("batch", us, sent);
    return 0;
}
