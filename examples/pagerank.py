"""PageRank of a network: a sparse product a round, recorded as one message that the device ends.

A page has the rank that a walker has who follows links, and now and then goes anywhere.  The network grows by pages
that link to pages which have many links, so few have most of the rank.

    pip install '.[examples]'                               # for a GPU '.[examples,cu13]', or cu12 with an older driver
    python examples/pagerank.py                             # on cuda:0; without a GPU on the host
    python examples/pagerank.py --device host --pages 2000
"""

import argparse
import importlib.util
import sys
import tempfile
from pathlib import Path

import numpy as np
import scipy.sparse

import atomr_native as an

PACKAGES = {"matplotlib": "matplotlib"}
LIMIT = 1000


def network(pages, links, seed):
    """Return who links to whom: CSR of shape (pages, pages), with a row for each page that links."""
    rng = np.random.default_rng(seed)
    target = np.zeros((pages, links), np.int64)
    for page in range(1, pages):  # half of the links go to any earlier page, half to where an earlier link goes
        earlier = rng.integers(0, page, links)
        popular = target[earlier, rng.integers(0, links, links)]
        target[page] = np.where(rng.random(links) < 0.5, earlier, popular)
    rows = np.repeat(np.arange(1, pages), links)  # the first page links to nothing
    made = scipy.sparse.coo_array((np.ones(len(rows)), (rows, target[1:].ravel())), shape=(pages, pages)).tocsr()
    made.sum_duplicates()
    made.data[:] = 1
    return made


class PageRank:
    """Ranks of a network on a device, by a program that is recorded once."""

    def __init__(self, device, links):
        self.device, n = device, links.shape[0]
        degree = links.sum(axis=1)
        share = scipy.sparse.csr_array(links.multiply(1 / np.maximum(degree, 1)[:, None]))
        self.matrix = device.sparse.matrix(share.T.tocsr())  # a row for each page that is linked to
        self.lost = device.put((degree == 0).astype(float))  # pages whose walkers go anywhere
        self.rank, self.next = (device.zeros(n, "float64") for _ in range(2))
        self.rounds, self.more = device.zeros((), "int64"), device.zeros((), "bool")
        self.pages = n
        self.plan = self.record()

    def record(self):
        run = self.device.elementwise.run
        with self.device.record() as g:
            damping, tolerance = g.scalar("damping", 0.85), g.scalar("tolerance", 1e-10)
            self.rank.fill(1 / self.pages)
            self.rounds.fill(0)
            self.more.fill(True)
            with g.while_(self.more, limit=LIMIT):
                self.device.sparse.spmv(self.matrix, self.rank, out=self.next)
                anywhere = (self.lost * self.rank).sum()
                run(f"out = d * (x + a / {self.pages}) + (1 - d) / {self.pages}", x=self.next, a=anywhere, d=damping,
                    out=self.next)  # fmt: skip
                change = abs(self.next - self.rank).sum()
                self.device.copy(self.next, out=self.rank)
                run("out = n + 1", n=self.rounds, out=self.rounds)
                run("out = c > t", c=change, t=tolerance, out=self.more)
        return g.plan

    def ranks(self, damping=0.85, tolerance=1e-10):
        """Return the ranks, whose sum is 1, and the rounds that it took.  One message."""
        self.plan.tell(damping=damping, tolerance=tolerance)
        return self.rank.numpy(), int(self.rounds)


def parse(argv):
    what, _, rest = __doc__.partition("\n\n")
    parser = argparse.ArgumentParser(
        description=what, epilog=rest, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    add = parser.add_argument
    add("--device", help="cuda:N or host; by default cuda:0 if there is a GPU, and host if not")
    add("--pages", type=int, default=20_000, metavar="N", help="2 or more (%(default)s)")
    add("--links", type=int, default=8, metavar="N", help="of each page, 1 or more (%(default)s)")
    add("--damping", type=float, default=0.85, metavar="D", help="how often a link is followed (%(default)s)")
    add("--seed", type=int, default=3, metavar="N", help="of the network (%(default)s)")
    add("--output", type=Path, default=Path("pagerank.png"), metavar="PNG", help="(%(default)s)")
    options = parser.parse_args(argv)
    for name, least in (("pages", 2), ("links", 1)):
        if (value := getattr(options, name)) < least:
            parser.error(f"--{name} {value}; it must be {least} or more")
    if not 0 <= options.damping < 1:
        parser.error(f"--damping {options.damping}; it must be 0 or more, and below 1")
    if options.output.suffix.lower() != ".png":
        parser.error(f"--output {options.output}; its name must end in .png")
    return options


def draw(path, links, ranks):
    """Draw the rank of each page over the number of links to it."""
    import matplotlib as mpl

    mpl.use("agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(6, 4))
    axes.loglog(links.sum(axis=0) + 1, ranks, ".", markersize=3, alpha=0.4)
    axes.set_xlabel("links to the page, and one")
    axes.set_ylabel("rank")
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    plt.close(figure)


def run(options):
    links = network(options.pages, options.links, options.seed)
    with an.System() as system:
        device = system.device(options.device) if options.device else system.device()
        print(f"{links.shape[0]} pages and {links.nnz} links on {device.name}", flush=True)
        ranks, rounds = PageRank(device, links).ranks(options.damping)
    print(f"{rounds} rounds; the sum of all ranks is {ranks.sum():.6f}")
    for page in np.argsort(-ranks, kind="stable")[:5]:
        print(f"page {page}: rank {ranks[page]:.5f}, {int(links[:, [page]].sum())} links to it")
    draw(options.output, links, ranks)
    print(f"wrote {options.output}")


def main(argv=None):
    """Rank: 0 if it worked, 1 if it failed, 2 if it cannot be done here."""
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
