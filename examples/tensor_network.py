"""Contract a tensor network, and iterate equations of coupled cluster doubles: each expression is one message.

The network is the partition function of an Ising model on a square lattice: a tensor for each site, a mode of size 2
for each bond.  The equations are those of a model with random integrals; every term is a contraction, one of three
tensors.  The program prints the path of the network, and draws it as a tree.

    pip install '.[examples]'                               # for a GPU '.[examples,cu13]', or cu12 with an older driver
    python examples/tensor_network.py                       # on cuda:0; without a GPU on the host
    python examples/tensor_network.py --device host --sites 3 --coupling 0.5
"""

import argparse
import importlib.util
import sys
import tempfile
from pathlib import Path

import numpy as np

import atomr_native as an

PACKAGES = {"matplotlib": "matplotlib"}


def lattice(sites, coupling):
    """Return the tensors of an Ising model, and their modes; float64."""
    weights = np.exp(coupling * np.array([[1.0, -1.0], [-1.0, 1.0]]))
    values, vectors = np.linalg.eigh(weights)
    half = vectors * np.sqrt(values)  # half @ half.T are the weights of a bond
    tensors, modes = [], []
    for row in range(sites):
        for column in range(sites):
            bonds = []
            for (i, j), (k, m) in (
                ((row, column), (row, column + 1)), ((row, column), (row + 1, column)),
                ((row, column - 1), (row, column)), ((row - 1, column), (row, column)),
            ):  # fmt: skip
                if min(i, j) >= 0 and max(k, m) < sites:
                    bonds.append((i * sites + j) * 2 + (k > i))
            names = "abcd"[: len(bonds)]
            tensors.append(np.einsum(",".join(f"x{name}" for name in names) + f"->{names}", *[half] * len(bonds)))
            modes.append(bonds)
    return tensors, modes


def partition(device, sites, coupling):
    """Return the partition function, and the path by which it is computed."""
    tensors, modes = lattice(sites, coupling)
    refs = [device.put(tensor) for tensor in tensors]
    path = device.tensor.einsum_path([*modes, []], *refs)
    return device.tensor.einsum([*modes, []], *refs).item(), path


def integrals(occupied, virtual, seed):
    """Return antisymmetric integrals by name, and the denominators of the amplitudes; float64."""
    rng = np.random.default_rng(seed)
    extents = {"o": occupied, "v": virtual}
    found = {}
    for name in ("oovv", "vvvv", "oooo", "ovvo"):
        found[name] = 0.05 * rng.standard_normal([extents[kind] for kind in name])
    for name, axes in (("oovv", (0, 1)), ("oovv", (2, 3)), ("vvvv", (0, 1)), ("oooo", (0, 1))):
        found[name] = found[name] - found[name].swapaxes(*axes)
    low, high = -1 - rng.random(occupied), 1 + rng.random(virtual)
    found["denominators"] = 1 / (low[:, None, None, None] + low[:, None, None] - high[:, None] - high)
    return found


def step(tensor, v, t):
    """Return the next amplitudes and the energy of these."""
    energy = tensor.contract("ijab,ijab->", v["oovv"], t, alpha=0.25)
    r = tensor.contract("abcd,ijcd->ijab", v["vvvv"], t, c=v["oovv"], alpha=0.5, beta=1)
    r = tensor.contract("klij,klab->ijab", v["oooo"], t, c=r, out=r, alpha=0.5, beta=1)
    r = tensor.contract("kbcj,ikac->ijab", v["ovvo"], t, c=r, out=r, beta=1)
    r = tensor.contract("klcd,ikac,jlbd->ijab", v["oovv"], t, t, c=r, out=r, alpha=0.5, beta=1)
    return tensor.binary("ijab,ijab->ijab", r, v["denominators"], ab="mul"), energy


def coupled_cluster(device, occupied, virtual, steps, seed):
    """Return the energies of the iterations."""
    v = {name: device.put(array) for name, array in integrals(occupied, virtual, seed).items()}
    t = device.zeros(v["oovv"].shape, "float64")
    energies = []
    for _ in range(steps + 1):
        t, energy = step(device.tensor, v, t)
        energies.append(energy)
    return [energy.item() for energy in energies[1:]]


def draw(path, count, output):
    """Draw the path as a tree: operands below, each step over what it joins."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    places = {}
    order = []

    def visit(node):
        if node < count:
            order.append(node)
        else:
            for child in path.steps[node - count].operands:
                visit(child)

    visit(count + len(path.steps) - 1)
    for x, node in enumerate(order):
        places[node] = (x, 0)
    figure, axes = plt.subplots(figsize=(10, 6))
    for number, made in enumerate(path.steps):
        below = [places[i] for i in made.operands]
        here = (sum(x for x, _ in below) / len(below), max(y for _, y in below) + 1)
        for x, y in below:
            axes.plot([x, here[0]], [y, here[1]], color="0.6", zorder=1)
        places[count + number] = here
        axes.scatter(*here, s=20 + 30 * np.log2(1 + made.flops), color="tab:blue", zorder=2)
        axes.annotate(f"{made.flops:,}", here, ha="center", va="bottom", fontsize=7)
    axes.scatter(range(count), [0] * count, color="tab:orange", zorder=2)
    axes.set_title(f"{count} tensors, {path.flops:,} FLOPs")
    axes.axis("off")
    figure.savefig(output)
    plt.close(figure)


def parse(argv):
    what, _, rest = __doc__.partition("\n\n")
    parser = argparse.ArgumentParser(
        description=what, epilog=rest, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    add = parser.add_argument
    add("--device", help="cuda:N or host; by default cuda:0 if there is a GPU, and host if not")
    add("--sites", type=int, default=4, metavar="N", help="of a side of the lattice, 2 to 7 (%(default)s)")
    add("--coupling", type=float, default=0.4, metavar="F", help="over the temperature, above 0 (%(default)s)")
    add("--occupied", type=int, default=4, metavar="N", help="orbitals, 2 or more (%(default)s)")
    add("--virtual", type=int, default=8, metavar="N", help="orbitals, 2 or more (%(default)s)")
    add("--steps", type=int, default=12, metavar="N", help="iterations, 1 or more (%(default)s)")
    add("--seed", type=int, default=7, metavar="N", help="of the integrals (%(default)s)")
    add("--output", type=Path, default=Path("tensor_network.png"), metavar="PNG", help="(%(default)s)")
    options = parser.parse_args(argv)
    for name, low, high in (("sites", 2, 7), ("occupied", 2, 64), ("virtual", 2, 64), ("steps", 1, 1000)):
        if not low <= getattr(options, name) <= high:
            parser.error(f"--{name} {getattr(options, name)}; it must be from {low} to {high}")
    if not 0 < options.coupling < 10:
        parser.error(f"--coupling {options.coupling}; it must be between 0 and 10")
    if options.output.suffix.lower() != ".png":
        parser.error(f"--output {options.output}; its name must end in .png")
    return options


def run(options):
    with an.System() as system:
        device = system.device(options.device) if options.device else system.device()
        found, path = partition(device, options.sites, options.coupling)
        print(f"{options.sites} x {options.sites} spins on {device.name}")
        print(path)
        print(f"log Z of each spin: {np.log(found) / options.sites**2:.6f}", flush=True)
        energies = coupled_cluster(device, options.occupied, options.virtual, options.steps, options.seed)
    print(f"coupled cluster energy after {options.steps} steps: {energies[-1]:.10f}")
    print(f"change in the last step: {abs(energies[-1] - energies[-2]) if len(energies) > 1 else energies[-1]:.1e}")
    draw(path, options.sites**2, options.output)
    print(f"wrote {options.output}")


def main(argv=None):
    """Contract and iterate: 0 if it worked, 1 if it failed, 2 if it cannot be done here."""
    options = parse(argv)
    missing = [package for module, package in PACKAGES.items() if importlib.util.find_spec(module) is None]
    if missing:
        print(f"needs {' and '.join(missing)}: pip install '.[examples]' in a clone of atomr_native", file=sys.stderr)
        return 2
    try:
        options.output.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=options.output.parent):  # better known now than afterwards
            pass
        run(options)
    except OSError as error:
        print(f"cannot write {options.output}: {error.strerror}", file=sys.stderr)
        return 2
    except an.AtomrError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 2 if isinstance(error, an.InvalidRequest | an.Unsupported) else 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
