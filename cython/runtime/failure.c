#include "runtime/failure.h"

#include <stdarg.h>
#include <stdio.h>

static void write_down(atomr_failure *f, const char *lib, int status, const char *name, const char *format,
                       va_list values) {
    f->status = status;
    snprintf(f->lib, sizeof f->lib, "%s", lib);
    snprintf(f->name, sizeof f->name, "%s", name);
    vsnprintf(f->text, sizeof f->text, format, values);
}

int atomr_failed(atomr_failure *f, int code, const char *lib, int status, const char *name, const char *format, ...) {
    va_list values;
    va_start(values, format);
    write_down(f, lib, status, name ? name : "unknown status", format, values);
    va_end(values);
    return code;
}

int atomr_unsupported(atomr_failure *f, const char *lib, const char *rule, const char *format, ...) {
    va_list values;
    va_start(values, format);
    write_down(f, lib, 0, rule, format, values);
    va_end(values);
    return ATOMR_UNSUPPORTED;
}

int atomr_refused(atomr_failure *f, int code, const char *format, ...) {
    va_list values;
    va_start(values, format);
    write_down(f, "atomr", 0, "", format, values);
    va_end(values);
    return code;
}
