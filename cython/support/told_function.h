/* A function with another answer to keywords that it does not know.
 *
 * `ToldFunction(function, explain, quick, limit)` calls as the function does, by a C call instead of a frame of Python's.
 * When a call with keywords ends with a TypeError, `explain(function, args, names)` may raise a better error; if it
 * returns, the TypeError stays.
 *
 * `quick` is the same function with parameters by name alone made positional, for calls with at most `limit` positional
 * arguments: Python copies defaults of positional parameters, and looks up each of the others in a dictionary. */
#ifndef ATOMR_TOLD_FUNCTION_H
#define ATOMR_TOLD_FUNCTION_H

#include <Python.h>
#include <structmember.h>
#include <string.h>

typedef struct {
    PyObject_HEAD
    PyObject *function; /* set once */
    PyObject *explain;  /* set once */
    PyObject *quick;    /* set once */
    Py_ssize_t limit;   /* set once */
    vectorcallfunc call;
} told_function;

static void told_explain(told_function *self, PyObject *const *args, size_t count, PyObject *names) {
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    PyObject *given = PyTuple_New((Py_ssize_t)count);
    if (given != NULL) {
        for (size_t i = 0; i < count; i++) {
            Py_INCREF(args[i]);
            PyTuple_SET_ITEM(given, (Py_ssize_t)i, args[i]);
        }
        PyObject *said = PyObject_CallFunctionObjArgs(self->explain, self->function, given, names, NULL);
        Py_DECREF(given);
        if (said != NULL) {
            Py_DECREF(said);
            PyErr_Restore(type, value, trace);
            return;
        }
    }
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(trace);
}

static PyObject *told_call(PyObject *object, PyObject *const *args, size_t flags, PyObject *names) {
    told_function *self = (told_function *)object;
    PyObject *callee = PyVectorcall_NARGS(flags) <= self->limit ? self->quick : self->function;
    PyObject *result = PyObject_Vectorcall(callee, args, flags, names);
    if (result == NULL && names != NULL && PyErr_ExceptionMatches(PyExc_TypeError))
        told_explain(self, args, (size_t)PyVectorcall_NARGS(flags), names);
    return result;
}

static PyObject *told_new(PyTypeObject *type, PyObject *args, PyObject *options) {
    PyObject *function, *explain, *quick;
    Py_ssize_t limit;
    if (options != NULL && PyDict_GET_SIZE(options) != 0) {
        PyErr_SetString(PyExc_TypeError, "ToldFunction takes no keyword arguments");
        return NULL;
    }
    if (!PyArg_ParseTuple(args, "OOOn:ToldFunction", &function, &explain, &quick, &limit)) return NULL;
    if (!PyCallable_Check(function) || !PyCallable_Check(explain) || !PyCallable_Check(quick)) {
        PyErr_SetString(PyExc_TypeError, "ToldFunction(function, explain, quick, limit) of three callables");
        return NULL;
    }
    told_function *self = (told_function *)type->tp_alloc(type, 0);
    if (self == NULL) return NULL;
    Py_INCREF(function);
    Py_INCREF(explain);
    Py_INCREF(quick);
    self->function = function;
    self->explain = explain;
    self->quick = quick;
    self->limit = limit;
    self->call = told_call;
    return (PyObject *)self;
}

static int told_traverse(PyObject *object, visitproc visit, void *arg) {
    told_function *self = (told_function *)object;
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(self->function);
    Py_VISIT(self->explain);
    Py_VISIT(self->quick);
    return 0;
}

static int told_clear(PyObject *object) {
    told_function *self = (told_function *)object;
    Py_CLEAR(self->function);
    Py_CLEAR(self->explain);
    Py_CLEAR(self->quick);
    return 0;
}

static void told_dealloc(PyObject *object) {
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    (void)told_clear(object);
    type->tp_free(object);
    Py_DECREF(type);
}

static PyObject *told_bind(PyObject *object, PyObject *instance, PyObject *type) {
    (void)type;
    if (instance != NULL && instance != Py_None) return PyMethod_New(object, instance);
    Py_INCREF(object);
    return object;
}

/* Name, docstring, annotations, code and all others are those of the function, for tools that look at functions. */
static PyObject *told_attribute(PyObject *object, PyObject *name) {
    static const char *const own[] = {"__class__", "__wrapped__", "__get__", "__call__", "__reduce__", "__reduce_ex__"};
    told_function *self = (told_function *)object;
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        if (PyUnicode_CompareWithASCIIString(name, own[i]) == 0) return PyObject_GenericGetAttr(object, name);
    return PyObject_GetAttr(self->function, name);
}

static int told_set_attribute(PyObject *object, PyObject *name, PyObject *value) {
    return PyObject_SetAttr(((told_function *)object)->function, name, value);
}

static PyObject *told_repr(PyObject *object) { return PyObject_Repr(((told_function *)object)->function); }

/* Pickled by its name, as functions are. */
static PyObject *told_reduce(PyObject *object, PyObject *protocol) {
    (void)protocol;
    return PyObject_GetAttrString(((told_function *)object)->function, "__qualname__");
}

static PyObject *told_type(void) {
    static PyMemberDef members[] = {
        {"__wrapped__", T_OBJECT_EX, offsetof(told_function, function), READONLY, NULL},
        {"__vectorcalloffset__", T_PYSSIZET, offsetof(told_function, call), READONLY, NULL},
        {NULL, 0, 0, 0, NULL},
    };
    static PyMethodDef methods[] = {
        {"__reduce_ex__", told_reduce, METH_O, NULL},
        {NULL, NULL, 0, NULL},
    };
    static PyType_Slot slots[] = {
        {Py_tp_new, (void *)told_new},
        {Py_tp_dealloc, (void *)told_dealloc},
        {Py_tp_traverse, (void *)told_traverse},
        {Py_tp_clear, (void *)told_clear},
        {Py_tp_call, (void *)PyVectorcall_Call},
        {Py_tp_descr_get, (void *)told_bind},
        {Py_tp_getattro, (void *)told_attribute},
        {Py_tp_setattro, (void *)told_set_attribute},
        {Py_tp_repr, (void *)told_repr},
        {Py_tp_members, members},
        {Py_tp_methods, methods},
        {0, NULL},
    };
    static PyType_Spec spec = {
        "atomr_native._lib.told.ToldFunction",
        (int)sizeof(told_function),
        0,
        Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_METHOD_DESCRIPTOR
            | Py_TPFLAGS_IMMUTABLETYPE,
        slots,
    };
    return PyType_FromSpec(&spec);
}

#endif
