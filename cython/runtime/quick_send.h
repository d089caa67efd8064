/* Sends without a tuple and a dictionary for their arguments.
 *
 * A Cython function with `*operands` and `**named` gets both made for each call.  A QuickSend takes the arguments where
 * the caller has them, when all are by position but for `out`, and calls the function for all others. */
#ifndef ATOMR_QUICK_SEND_H
#define ATOMR_QUICK_SEND_H

#include <Python.h>
#include <structmember.h>

/* `out` may be NULL.  A new reference, or NULL with an exception. */
typedef PyObject *(*quick_sender)(PyObject *plan, PyObject *const *operands, Py_ssize_t n, PyObject *out, int kind);

static inline PyObject *const *items_of(PyObject *tuple) { return ((PyTupleObject *)tuple)->ob_item; }

typedef struct {
    PyObject_HEAD
    vectorcallfunc call;
    PyObject *function; /* set once */
    PyObject *name;     /* "out" */
    quick_sender send;
    int kind;
} quick_send;

static PyObject *quick_send_call(PyObject *object, PyObject *const *args, size_t flags, PyObject *names) {
    quick_send *self = (quick_send *)object;
    const Py_ssize_t n = PyVectorcall_NARGS(flags), named = names ? PyTuple_GET_SIZE(names) : 0;
    if (n > 0 && (named == 0 || (named == 1 && PyTuple_GET_ITEM(names, 0) == self->name)))
        return self->send(args[0], args + 1, n - 1, named ? args[n] : NULL, self->kind);
    return PyObject_Vectorcall(self->function, args, flags, names);
}

static void quick_send_dealloc(PyObject *object) {
    quick_send *self = (quick_send *)object;
    PyTypeObject *type = Py_TYPE(object);
    Py_XDECREF(self->function);
    Py_XDECREF(self->name);
    type->tp_free(object);
    Py_DECREF(type);
}

static PyObject *quick_send_type(void) {
    static PyMemberDef members[] = {
        {"__vectorcalloffset__", T_PYSSIZET, offsetof(quick_send, call), READONLY, NULL},
        {NULL, 0, 0, 0, NULL},
    };
    static PyType_Slot slots[] = {
        {Py_tp_dealloc, (void *)quick_send_dealloc},
        {Py_tp_call, (void *)PyVectorcall_Call},
        {Py_tp_members, members},
        {0, NULL},
    };
    static PyType_Spec spec = {
        "atomr_native._lib.sender.QuickSend",
        (int)sizeof(quick_send),
        0,
        Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_DISALLOW_INSTANTIATION
            | Py_TPFLAGS_IMMUTABLETYPE,
        slots,
    };
    return PyType_FromSpec(&spec);
}

static PyObject *quick_send_new(PyObject *type, PyObject *function, quick_sender send, int kind) {
    quick_send *self = (quick_send *)((PyTypeObject *)type)->tp_alloc((PyTypeObject *)type, 0);
    if (self == NULL) return NULL;
    self->call = quick_send_call;
    self->send = send;
    self->kind = kind;
    self->name = PyUnicode_InternFromString("out");
    Py_INCREF(function);
    self->function = function;
    if (self->name != NULL) return (PyObject *)self;
    Py_DECREF(self);
    return NULL;
}

#endif
