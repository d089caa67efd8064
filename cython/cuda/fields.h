/* What Python knows by name: structs of 64-bit integers that it fills in, and constants that it reads.
 *
 * A struct is listed once, in a macro NAME_FIELDS(F, A) of F(member) and A(member, count), from which its declaration
 * and the table of its members are made:
 *
 *     typedef struct { NAME_FIELDS(ATOMR_MEMBER, ATOMR_ARRAY) } name_spec;
 *     const atomr_field name_fields[] = {NAME_FIELDS(ATOMR_MEMBER_NAME, ATOMR_ARRAY_NAME) ATOMR_LAST_FIELD};
 *
 * Constants are listed as NAME_CONSTANTS(C) of C(name, value); structs of NVIDIA's headers, with their sizes there, as
 * NAME_STRUCTS(S) of S(name, size).
 */
#ifndef ATOMR_FIELDS_H
#define ATOMR_FIELDS_H

#include <stddef.h>
#include <stdint.h>

typedef struct {
    const char *name; /* NULL after the last one */
    unsigned count;   /* of 64-bit integers */
} atomr_field;

#define ATOMR_MEMBER(name) int64_t name;
#define ATOMR_ARRAY(name, count) int64_t name[count];
#define ATOMR_MEMBER_NAME(name) {#name, 1},
#define ATOMR_ARRAY_NAME(name, count) {#name, count},
#define ATOMR_LAST_FIELD {NULL, 0}

typedef struct {
    const char *name; /* NULL after the last one */
    int64_t value;
} atomr_constant;

#define ATOMR_ENUMERATOR(name, value) name = value,
#define ATOMR_CONSTANT(name, value) {#name, value},
#define ATOMR_LAST_CONSTANT {NULL, 0}

#define ATOMR_STRUCT_SIZE(name, size) _Static_assert(sizeof(name) == size, "a " #name);

#endif
