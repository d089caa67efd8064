"""Epilogue visitor trees in C++: one visitor for each array, and one for all arithmetic between two stores.

The arithmetic of neighbouring nodes becomes one scalar function, so the depth of a Python expression costs no template
instances, and a value that occurs twice is computed once.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from . import functors
from .kernel import FUNCTORS, Kernel, Node, walk
from .types import BITS, CPP

__all__ = ["STORES", "Tree", "rendered"]

#: Nodes that store, and pass their argument on.
STORES = ("aux_store", "reduce_row", "reduce_column", "reduce_scalar")
#: Strides of vectors, along N and M.
_ROW = "cute::_0, cute::_1"
_COLUMN = "cute::_1, cute::_0"
_RN = "cutlass::FloatRoundStyle::round_to_nearest"
_IDENTITY = {"add": "{0}(0)", "max": "-cutlass::platform::numeric_limits<{0}>::infinity()"}
_REDUCE = {"add": "cutlass::plus", "max": "cutlass::maximum_with_nan_propagation"}
_ATOMIC = {"add": "cutlass::atomic_add", "max": "cutlass::atomic_maximum"}


@dataclass
class Tree:
    """A tree in C++.

    Attributes
    ----------
    functions : list of str
        Definitions that need no type of the kernel.
    types : list of str
        Definitions of visitors.
    arguments : list of str
        Statements that set the variable `variable` to the arguments of the visitor `root`.
    fields : list of (str, str)
        Numbers of the parameter builder: name and dtype.
    pointers : list of str
    declared : list of (str, int)
        Functions that are linked: symbol and number of arguments.
    columns : list of Node
        Columns with an address for each group, an array in the workspace.
    """

    root: str = ""
    variable: str = ""
    functions: list[str] = field(default_factory=list)
    types: list[str] = field(default_factory=list)
    arguments: list[str] = field(default_factory=list)
    fields: list[tuple[str, str]] = field(default_factory=list)
    pointers: list[str] = field(default_factory=list)
    declared: list[tuple[str, int]] = field(default_factory=list)
    stored: set[str] = field(default_factory=set)
    leaves: dict[Node, tuple[str, str]] = field(default_factory=dict)
    columns: list[Node] = field(default_factory=list)

    def text(self) -> str:
        """Return the functions, to stand before the types."""
        return "\n".join(self.functions)


def _is_arithmetic(node: Node) -> bool:
    return node.op in FUNCTORS or node.op == "function"


class Writer:
    """Writes a tree for one generation of templates; the subclasses know its visitors."""

    #: Template of a node with children.
    evt = ""
    #: Type of a scalar's batch stride, and what stands around it.
    stride = "int64_t"
    around = "{{{}}}"

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.tree = Tree()
        self.compute = CPP[kernel.compute]
        for node in walk(kernel.tree):
            known = node.name, len(node.args)
            if node.op == "function" and known not in self.tree.declared:
                self.tree.declared.append(known)

    def write(self) -> Tree:
        """Return the whole tree; its root's value has D's type."""
        tree = self.tree
        tree.functions.append(functors.SOURCE)
        for symbol, arity in tree.declared:
            types = ", ".join([self.compute] * arity)
            tree.functions.append(f'extern "C" __device__ {self.compute} {symbol}({types});')
        node = self.kernel.tree
        exact = node.op == "acc" and self.kernel.accumulator == self.kernel.d.dtype == "int32"
        compute = "int32_t" if exact else self.compute
        root = node if _is_arithmetic(node) else Node("identity", (node,))
        tree.root, tree.variable = self.arithmetic(root, CPP[self.kernel.d.dtype], compute)
        self.finish()
        return tree

    def finish(self) -> None:
        """Add nodes above the root."""

    def visit(self, node: Node) -> tuple[str, str]:
        """Return type and variable of a node's visitor."""
        if _is_arithmetic(node):
            return self.arithmetic(node, self.compute, self.compute)
        if node.op in STORES:
            return self.store(node)
        found = self.tree.leaves.get(node)
        if found is None:
            found = self.tree.leaves[node] = self.leaf(node)
        return found

    def store(self, node: Node) -> tuple[str, str]:
        """Return the visitor of a node that stores; a second use of it does not store again."""
        if node.name in self.tree.stored:
            return self.visit(node.args[0])
        self.tree.stored.add(node.name)
        child, given = self.visit(node.args[0])
        type_, value = self.storing(node)
        return self.add(f"{self.evt}<{type_}, {child}>", f"{{{given}, {{{value}}}}}")

    def arithmetic(self, node: Node, result: str, compute: str) -> tuple[str, str]:
        """Return the visitor of all arithmetic from a node down to arrays, scalars and stores."""
        inputs: list[Node] = []

        def expression(one: Node) -> str:
            if one.op in FUNCTORS:
                return functors.call(one.op, [expression(arg) for arg in one.args])
            if one.op == "function":
                return f"{one.name}({', '.join(expression(arg) for arg in one.args)})"
            if one not in inputs:
                inputs.append(one)
            return f"x{inputs.index(one)}[i]"

        text = expression(node)
        name = f"Arithmetic{len(self.tree.types)}"
        given = ", ".join(f"cutlass::Array<T, N> const& x{i}" for i in range(len(inputs)))
        self.tree.functions.append(
            f"template <class T> struct {name};\n"
            f"template <class T, int N> struct {name}<cutlass::Array<T, N>> {{\n"
            f"  CUTLASS_DEVICE cutlass::Array<T, N> operator()({given}) const {{\n"
            f"    cutlass::Array<T, N> y;\n    CUTLASS_PRAGMA_UNROLL\n"
            f"    for (int i = 0; i < N; ++i) y[i] = {text};\n    return y;\n  }}\n}};"
        )
        self.tree.types.append(f"// {name}")  # whose number is taken before those of its inputs
        children = [self.visit(one) for one in inputs]
        types = ", ".join([self.computing(name, result, compute), *(child for child, _ in children)])
        return self.add(f"{self.evt}<{types}>", f"{{{', '.join([*(v for _, v in children), '{}'])}}}")

    def add(self, type_: str, value: str) -> tuple[str, str]:
        """Define a visitor and its arguments; return the names of both."""
        name = f"Visitor{len(self.tree.types)}"
        variable = name.lower()
        self.tree.types.append(f"using {name} = {type_};")
        self.tree.arguments.append(f"typename {name}::Arguments {variable}{value};")
        return name, variable

    def batch(self, node: Node) -> str:
        """Return the expression of a node's batch stride."""
        self.tree.fields.append((f"batch_{node.name}", "int64"))
        return f"p.batch_{node.name}"

    def pointer(self, node: Node, const: str = " const") -> str:
        """Return the expression of a node's address."""
        self.tree.pointers.append(node.name)
        return f"reinterpret_cast<{CPP[node.dtype]}{const}*>(p.{node.name})"

    def matrix(self, node: Node, const: str = " const") -> tuple[str, str]:
        """Return the expressions of address and strides of a further matrix."""
        self.tree.fields.append((f"ld_{node.name}", "int64"))
        steps = "{}, p.ld_{}" if self.kernel.d.layout == "column" else "p.ld_{1}, {0}"
        return self.pointer(node, const), f"{{{steps.format('{}', node.name)}, {self.batch(node)}}}"

    def scalar(self, node: Node, template: str) -> tuple[str, str]:
        """Return the visitor of a scalar."""
        if node.value == "host":
            self.tree.fields.append((node.name, node.dtype))
            return self.add(f"{template}<{self.compute}>", f"{{{{{self.compute}(p.{node.name})}}, {{nullptr}}}}")
        stride = self.around.format(f"{{{{}}, {{}}, {self.stride}({self.batch(node)})}}")
        return self.add(
            f"{template}<{self.compute}, cute::Stride<cute::_0, cute::_0, {self.stride}>>",
            f"{{{{{self.compute}(0)}}, {{{self.pointer(node)}}}, {stride}}}",
        )

    def leaf(self, node: Node) -> tuple[str, str]:
        """Return the visitor of the accumulator, an array or a scalar."""
        raise NotImplementedError

    def storing(self, node: Node) -> tuple[str, str]:
        """Return the type of a visitor that stores, and its arguments."""
        raise NotImplementedError

    def computing(self, functor: str, result: str, compute: str) -> str:
        """Return the type of a visitor that computes."""
        raise NotImplementedError


class Sm90(Writer):
    """Visitors of warp-specialised kernels."""

    evt = "cutlass::epilogue::fusion::Sm90EVT"

    def computing(self, functor: str, result: str, compute: str) -> str:
        return f"cutlass::epilogue::fusion::Sm90Compute<{functor}, {result}, {compute}, {_RN}>"

    def leaf(self, node: Node) -> tuple[str, str]:
        space = "cutlass::epilogue::fusion::"
        if node.op == "acc":
            return self.add(f"{space}Sm90AccFetch", "{}")
        if node.op == "source":
            assert self.kernel.c is not None  # noqa: S101 - checked before
            return self.add(f"{space}Sm90SrcFetch<{CPP[self.kernel.c.dtype]}>", "{}")
        if node.op == "scalar":
            return self.scalar(node, f"{space}Sm90ScalarBroadcast")
        element = CPP[node.dtype]
        if node.op in ("row", "column"):
            visitor, stride = ("Sm90RowBroadcast", _ROW) if node.op == "row" else ("Sm90ColBroadcast", _COLUMN)
            if node.op == "column" and self.kernel.family == "grouped":  # an address for each group
                self.tree.columns.append(node)
                return self.add(
                    f"{space}{visitor}<0, TileShape, {element}*, {self.compute}, cute::Stride<{stride}, int64_t>, 1, "
                    f"false>",
                    f"{{reinterpret_cast<{element} const* const*>(columns_{node.name}), {element}(0), {{}}}}",
                )
            return self.add(
                f"{space}{visitor}<0, TileShape, {element}, {self.compute}, cute::Stride<{stride}, int64_t>, "
                f"{node.alignment}, false>",
                f"{{{self.pointer(node)}, {element}(0), {{{{}}, {{}}, {self.batch(node)}}}}}",
            )
        address, strides = self.matrix(node)
        return self.add(self.auxiliary("Load", "CopyOpS2R", element, node), f"{{{address}, {element}(0), {strides}}}")

    def auxiliary(self, kind: str, copy: str, element: str, node: Node) -> str:
        """Return the visitor of a further matrix: by TMA if its alignment allows, else by the threads themselves."""
        rounding = f"{_RN}, " if kind == "Store" else ""
        steps = "cute::_1, int64_t" if self.kernel.d.layout == "column" else "int64_t, cute::_1"
        stride = f"cute::Stride<{steps}, int64_t>"
        if node.alignment * BITS[node.dtype] % 128:
            return (f"cutlass::epilogue::fusion::Sm90Aux{kind}<0, void, {element}, {rounding}{stride}, void, void, "
                    f"{node.alignment}, false>")  # fmt: skip
        about = f"cutlass::epilogue::collective::detail::Aux{kind}Descriptor<Descriptor, {stride}, {element}>"
        return (f"cutlass::epilogue::fusion::Sm90Aux{kind}<{about}::Stages, typename Descriptor::EpilogueTile, "
                f"{element}, {rounding}{stride}, typename {about}::SmemLayoutAtom, typename {about}::{copy}, "
                f"{128 // BITS[node.dtype]}, false>")  # fmt: skip

    def storing(self, node: Node) -> tuple[str, str]:
        space, element = "cutlass::epilogue::fusion::", CPP[node.dtype]
        if node.op == "aux_store":
            address, strides = self.matrix(node, "")
            return self.auxiliary("Store", "CopyOpR2S", element, node), f"{address}, {strides}"
        reduce, atomic = _REDUCE[node.value], _ATOMIC[node.value]
        start = _IDENTITY[node.value].format(self.compute)
        values = f"{self.pointer(node, '')}, {start}, {{{{}}, {{}}, {self.batch(node)}}}"
        if node.op == "reduce_scalar":
            return (
                f"{space}Sm90ScalarReduction<{reduce}, {atomic}, {element}, {self.compute}, {_RN}, "
                "cute::Stride<cute::_0, cute::_0, int64_t>, false>",
                values,
            )
        visitor, stride = ("Sm90RowReduction", _ROW) if node.op == "reduce_row" else ("Sm90ColReduction", _COLUMN)
        return (
            f"{space}{visitor}<{reduce}, {reduce}, {atomic}, 0, TileShape, {element}, {self.compute}, {_RN}, "
            f"cute::Stride<{stride}, int64_t>, {128 // BITS[node.dtype]}, false>",
            values,
        )


class Sm80(Writer):
    """Visitors of multistage kernels; the last one stores D."""

    evt = "cutlass::epilogue::threadblock::Sm80EVT"
    stride = "int"
    around = "{}"

    def computing(self, functor: str, result: str, compute: str) -> str:
        return f"cutlass::epilogue::threadblock::VisitorCompute<{functor}, {result}, {compute}, {_RN}>"

    def finish(self) -> None:
        tree, element = self.tree, CPP[self.kernel.d.dtype]
        tree.root, tree.variable = self.add(
            f"{self.evt}<cutlass::epilogue::threadblock::VisitorAuxStore<ThreadMap, {element}, {_RN}, "
            f"cute::Stride<int64_t, cute::_1, int64_t>>, {tree.root}>",
            f"{{{tree.variable}, {{reinterpret_cast<{element}*>(p.d), {{p.ldd, {{}}, p.batch_d}}}}}}",
        )

    def leaf(self, node: Node) -> tuple[str, str]:
        space = "cutlass::epilogue::threadblock::"
        stride = "cute::Stride<int64_t, cute::_1, int64_t>"
        if node.op == "acc":
            return self.add(f"{space}VisitorAccFetch", "{}")
        if node.op == "scalar":
            return self.scalar(node, f"{space}VisitorScalarBroadcast")
        if node.op == "source":
            assert self.kernel.c is not None  # noqa: S101 - checked before
            element = CPP[self.kernel.c.dtype]
            return self.add(
                f"{space}VisitorAuxLoad<ThreadMap, {element}, {stride}>",
                f"{{reinterpret_cast<{element}*>(p.c), {element}(0), {{p.ldc, {{}}, p.batch_c}}}}",
            )
        element = CPP[node.dtype]
        if node.op in ("row", "column"):
            visitor, stride = ("VisitorRowBroadcast", _ROW) if node.op == "row" else ("VisitorColBroadcast", _COLUMN)
            return self.add(
                f"{space}{visitor}<ThreadMap, {element}, cute::Stride<{stride}, int64_t>>",
                f"{{{self.pointer(node)}, {element}(0), {{{{}}, {{}}, {self.batch(node)}}}}}",
            )
        address, strides = self.matrix(node, "")
        return self.add(
            f"{space}VisitorAuxLoad<ThreadMap, {element}, {stride}>", f"{{{address}, {element}(0), {strides}}}"
        )

    def storing(self, node: Node) -> tuple[str, str]:
        space, element = "cutlass::epilogue::threadblock::", CPP[node.dtype]
        if node.op == "aux_store":
            address, strides = self.matrix(node, "")
            return (
                f"{space}VisitorAuxStore<ThreadMap, {element}, {_RN}, cute::Stride<int64_t, cute::_1, int64_t>>",
                f"{address}, {strides}",
            )
        reduce, atomic = _REDUCE[node.value], _ATOMIC[node.value]
        start = _IDENTITY[node.value].format(self.compute)
        visitor, stride = {
            "reduce_row": ("VisitorRowReduction", "cute::_0, cute::_1"),
            "reduce_column": ("VisitorColReduction", "cute::_1, cute::_0"),
            "reduce_scalar": ("VisitorScalarReduction", "cute::_0, cute::_0"),
        }[node.op]
        batch = self.stride if node.op == "reduce_scalar" else "int64_t"
        return (
            f"{space}{visitor}<{reduce}, {atomic}, ThreadMap, {element}, {self.compute}, {_RN}, "
            f"cute::Stride<{stride}, {batch}>>",
            f"{self.pointer(node, '')}, {start}, {{{{}}, {{}}, {batch}({self.batch(node)})}}",
        )


def rendered(kernel: Kernel) -> Tree:
    """Return a kernel's tree in C++."""
    return (Sm90 if kernel.arch == "sm_90a" else Sm80)(kernel).write()
