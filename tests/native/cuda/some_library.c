/* A library to open: built whole, and without one of its functions (-DOLD) as an older version would be. */
#include <stddef.h>

size_t some_version(void) { return 120401; }
int some_sum(int a, int b) { return a + b; }
#ifndef OLD
int some_product(int a, int b) { return a * b; }
int some_extra(void) { return 7; }
#endif
