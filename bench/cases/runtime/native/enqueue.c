/* Twin of `tell`: what enqueuing one record costs the sender.  The ring holds the whole burst, so the sender
 * never waits; the consumer drains at the same time.
 *
 * --place threads|processes   where the consumer lives
 * --spin-us N                 how long the consumer spins before it sleeps (-1: forever, so it is awake)
 * --rest-us N                 sleep so long before each message, so that the consumer is parked and the sender pays
 *                             for the wake-up; each message is timed alone and the median is printed
 * --pin 0|1                   1 (default): sender on one CPU, consumers on the others; 0: wherever the system puts them
 * --warm-ms N                 untimed messages for so long first
 * --count N                   messages
 */
#include "lane.h"

int main(int argc, char **argv)
{
    struct session session = session_start(argc, argv, 0);
    session_end(&session, "enqueue", session_measure(&session, 0));
    return 0;
}
