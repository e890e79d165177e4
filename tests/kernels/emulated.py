"""Kernels in Gluon without a GPU: groups of warps are threads, tiles are tensors.

What can go wrong between groups does here: barriers have phases, copies end as late as they may and products then or at
once, by chance, memory that a copy is on its way to holds NaN, and groups that wait for each other for ever are told.
Layouts, fences and what threads of one group do to each other are not looked at.
"""

import random
import threading
import types

import torch
from triton.experimental.gluon._runtime import GluonJITFunction
from triton.experimental.gluon.language import constexpr

# Seconds after which a barrier will not be passed any more.
PATIENCE = 30.0
# Additions to memory are atomic.
ADDING = threading.Lock()


class Tile(torch.Tensor):
    """A tensor that has a type, as in Gluon."""

    @property
    def type(self):
        return types.SimpleNamespace(layout=None)


def tile(value):
    return torch.as_tensor(value).as_subclass(Tile)


class Pointer:
    """Elements of a tensor, each by its place."""

    def __init__(self, memory, place=0):
        self.memory, self.place = memory, place
        self.dtype = types.SimpleNamespace(element_ty=torch.bfloat16)

    def __add__(self, distance):
        return Pointer(self.memory, self.place + distance)

    def load(self, mask=None, other=0):
        place = torch.as_tensor(self.place)
        if mask is None:
            return tile(self.memory[place])
        place, mask = torch.broadcast_tensors(place, mask)
        found = self.memory[place.where(mask, 0)]
        return tile(found.where(mask, torch.full_like(found, other)))

    def store(self, value):
        place, value = torch.broadcast_tensors(torch.as_tensor(self.place), torch.as_tensor(value))
        self.memory[place] = value.to(self.memory.dtype).as_subclass(torch.Tensor)

    def add(self, value, mask):
        place, value, mask = torch.broadcast_tensors(torch.as_tensor(self.place), value, torch.as_tensor(mask))
        with ADDING:
            self.memory.index_put_((place[mask],), value[mask].as_subclass(torch.Tensor), accumulate=True)


class Shared:
    """A part of shared memory."""

    def __init__(self, memory):
        self.memory = memory
        self.shape = memory.shape

    def index(self, at):
        return Shared(self.memory[at])

    def slice(self, start, length, dim=0):
        return Shared(self.memory.narrow(dim, start, length))

    def permute(self, order):
        return Shared(self.memory.permute(order))

    def load(self, _):
        return tile(self.memory.clone())

    def store(self, value):
        self.memory.copy_(value.to(self.memory.dtype))


class Barrier:
    """Passed, phase by phase, after ``count`` arrivals."""

    def __init__(self):
        self.count = self.arrived = self.phase = 0
        self.changed = threading.Condition()

    def arrive(self, arrivals):
        with self.changed:
            self.arrived += arrivals
            if self.arrived > self.count:
                raise AssertionError("an arrival too many")
            if self.arrived == self.count:
                self.arrived, self.phase = 0, self.phase ^ 1
                self.changed.notify_all()

    def wait(self, phase):
        with self.changed:
            if not self.changed.wait_for(lambda: self.phase != phase, PATIENCE):
                raise AssertionError("a barrier is never passed")


class Barriers(list):
    """Barriers in shared memory."""

    def index(self, at):
        return self[int(at)]


class Product:
    """A product on its way, done at once or when it is waited for."""

    def __init__(self, a, b, before, use_acc):
        self.given = (a, b, before, use_acc)
        self.found = None
        if random.random() < 0.5:
            self.value()

    def value(self):
        if self.found is None:
            a, b, before, use_acc = self.given
            before = before.value() if isinstance(before, Product) else before
            product = a.memory.float() @ b.memory.float()
            self.found = tile(product + before if use_acc else product)
        return self.found


class Products(threading.local):
    """Products of a group in their order."""

    def __init__(self):
        self.begun = []

    def begin(self, a, b, acc, use_acc=True, is_async=False):
        self.begun.append(Product(a, b, acc, use_acc))
        return self.begun[-1]

    def wait(self, others, deps):
        """Until no more than ``others`` are on their way; what is done has a value."""
        done = len(self.begun) - others
        for each in self.begun[:done]:
            each.value()
        self.begun = self.begun[done:]
        found = tuple(each if each in self.begun else each.value() for each in deps)
        return found if len(found) > 1 else found[0]


class Copies(threading.local):
    """Copies of a group that have not arrived."""

    def __init__(self):
        self.pending = []

    def copy(self, target, source, mask=None):
        target.memory.fill_(torch.nan)
        self.pending.append((target, source, mask))

    def finish(self, barrier=None, **_):
        for target, source, mask in self.pending:
            target.store(source.load(mask))
        self.pending.clear()
        if isinstance(barrier, Barrier):
            barrier.arrive(128)


def allocate(dtype, shape, layout, value=None):
    if dtype is torch.int64:
        return Barriers(Barrier() for _ in range(shape[0]))
    memory = torch.full(shape, torch.nan, dtype=dtype)
    if value is not None:
        memory.copy_(value)
    return Shared(memory)


def specialize(groups, *_):
    errors = []

    def group(function, arguments):
        try:
            # Whether gradients are recorded is a matter of each thread.
            with torch.no_grad():
                function(*arguments)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=group, args=each, daemon=True) for each in groups]
    for each in threads:
        each.start()
    for each in threads:
        each.join(2 * PATIENCE)
    if errors:
        raise errors[0]


def language(program):
    """What stands in for the language, in one program."""

    def layout(*_, **__):
        return None

    return types.SimpleNamespace(
        bfloat16=torch.bfloat16,
        float32=torch.float32,
        int32=torch.int32,
        int64=torch.int64,
        constexpr=constexpr,
        static_range=range,
        BlockedLayout=layout,
        SliceLayout=layout,
        NVMMADistributedLayout=layout,
        SwizzledSharedLayout=layout,
        program_id=lambda _: tile(program),
        thread_barrier=lambda: None,
        warp_specialize=specialize,
        allocate_shared_memory=allocate,
        arange=lambda start, end, layout=None: tile(torch.arange(start, end)),
        zeros=lambda shape, dtype, layout: tile(torch.zeros(shape, dtype=dtype)),
        full=lambda shape, value, dtype, layout: tile(torch.full(shape, value, dtype=dtype)),
        load=lambda pointer, mask=None, other=0: pointer.load(mask, other),
        store=lambda pointer, value: pointer.store(value),
        atomic_add=lambda pointer, value, mask, sem: pointer.add(value, mask),
        expand_dims=lambda value, axis: value.unsqueeze(axis),
        convert_layout=lambda value, _: value,
        where=lambda condition, a, b: tile(torch.where(condition, a, b)),
        maximum=lambda a, b: torch.maximum(a, tile(b).to(a.dtype)),
        max=lambda value, axis: value.amax(axis),
        sum=lambda value, axis: value.sum(axis),
        exp2=torch.exp2,
        floor=torch.floor,
        log2=torch.log2,
    )


def python(kernel, program, known):
    """A function of Gluon as one of Python, for one program; ``known``: those that it calls are made once."""
    if kernel in known:
        return known[kernel]
    copies = known.setdefault("copies", Copies())
    products = known.setdefault("products", Products())
    stand_ins = {
        "gl": language(program),
        "mbarrier": types.SimpleNamespace(
            MBarrierLayout=lambda: None,
            init=lambda barrier, count: setattr(barrier, "count", count),
            wait=lambda barrier, phase: barrier.wait(int(phase)),
            arrive=lambda barrier, count: barrier.arrive(count),
        ),
        "async_copy": types.SimpleNamespace(
            async_copy_global_to_shared=copies.copy,
            mbarrier_arrive=copies.finish,
            wait_group=copies.finish,
        ),
        "fence_async_shared": lambda: None,
        "warpgroup_mma": products.begin,
        "warpgroup_mma_wait": products.wait,
    }
    names = dict(kernel.fn.__globals__)
    function = known[kernel] = types.FunctionType(kernel.fn.__code__, names, kernel.__name__, kernel.fn.__defaults__)
    for name, value in list(names.items()):
        if isinstance(value, GluonJITFunction):
            names[name] = python(value, program, known)
        elif isinstance(value, constexpr):
            names[name] = value.value
    names.update({name: value for name, value in stand_ins.items() if name in names})
    return function


class Emulated:
    """A kernel in Gluon that is launched as usual and runs here."""

    def __init__(self, kernel):
        self.kernel = kernel

    def __getitem__(self, grid):
        def launch(*arguments, num_warps, **named):
            def passed(value):
                return Pointer(value.detach().view(-1)) if isinstance(value, torch.Tensor) else value

            for program in range(grid[0]):
                function = python(self.kernel, program, {})
                function(*map(passed, arguments), **{name: passed(value) for name, value in named.items()})

        return launch
