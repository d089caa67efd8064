/* Twin of `ask`: send one record, wait for its completion, over and over.
 *
 * --place threads|processes   where the consumer lives
 * --spin-us N                 how long either side spins before it sleeps: -1 forever (spin), 0 never (futex)
 * --rest-us N                 sleep so long before each message, so that the consumer is parked; each message is
 *                             then timed alone (two clock reads included) and the median is printed
 * --pin 0|1                   1 (default): sender on one CPU, consumers on the others; 0: wherever the system puts them
 * --warm-ms N                 untimed messages for so long first
 * --count N                   messages
 */
#include "lane.h"

int main(int argc, char **argv)
{
    struct session session = session_start(argc, argv, 1024);
    session_end(&session, "pingpong", session_measure(&session, 1));
    return 0;
}
