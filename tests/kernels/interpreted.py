"""Triton's interpreter without what it does again and again.

A program of a kernel runs some thousand small operations, and most of the time of each goes into what has the same
result every time: names of the language are replaced for each call of a function (a sum, a tile of zeros), types are
made anew for each tensor, tables of types for each look at one, and sums of integers are checked for overflow though
nobody is told. Here they are done once, or not at all where nothing comes of them. What kernels compute is untouched.
"""

import types

import numpy as np
import triton
import triton.language as tl
from triton.language import core
from triton.runtime import interpreter

# Whose interpreter this was read of; others stay as they are.
KNOWN = "3.6."


class Replaced:
    """The names that the interpreter replaces: for a launch, and not again for the calls within it."""

    def __init__(self, replace):
        scope = replace(types.SimpleNamespace(__globals__={"tl": tl, "core": core}))
        self.changes = [
            (owner, name, was, index if name == "__index__" else getattr(owner, name))
            for owner, name, was in scope._changes
        ]
        scope.restore()
        self.launched = False

    def __call__(self, function):
        if self.launched:
            return types.SimpleNamespace(restore=lambda: None)
        self.launched = True
        for owner, name, _, now in self.changes:
            setattr(owner, name, now)
        return self

    def restore(self):
        for owner, name, was, _ in reversed(self.changes):
            if was is interpreter._MISSING:
                delattr(owner, name)
            else:
                setattr(owner, name, was)
        self.launched = False


def index(self):
    """Of a tensor of one element; the interpreter's own has NumPy warn each time."""
    return int(self.handle.data.item())


def numpy_types(original):
    """The type of NumPy for a type of the language, looked up by its name."""
    known = {}

    def found(kind):
        scalar = kind.scalar
        if isinstance(scalar, core.pointer_type):
            return np.dtype(np.uint64)
        if scalar.name not in known:
            known[scalar.name] = original(scalar)
        return known[scalar.name]

    return found


def once_each(block_type):
    """One object for each type of a tensor, with the shape as its tensors have it."""
    known = {}
    original = block_type.__init__

    def new(cls, element_ty, shape):
        shape = tuple(core._unwrap_if_constexpr(each) for each in shape)
        key = element_ty.name, getattr(element_ty, "address_space", None), shape
        if key not in known:
            known[key] = made = object.__new__(cls)
            original(made, element_ty, list(shape))
            made.of_tensors = core.tuple([core.constexpr(each) for each in shape]), core.constexpr(made.numel)
        return known[key]

    block_type.__new__ = new
    block_type.__init__ = lambda self, element_ty, shape: None


def typed_when_asked(sequence):
    """A sequence of the language finds its type out when somebody asks."""
    original, member = sequence.__init__, sequence.__getattr__

    def init(self, args, type=None):
        if type is None:
            self.values = list(args)
        else:
            original(self, args, type)

    def getattr(self, name):
        if name == "type":
            self.type = core._type_for_tuple_values(self.values)
            return self.type
        return member(self, name)

    sequence.__init__, sequence.__getattr__ = init, getattr


NO_SHAPE = core.tuple([]), core.constexpr(1)


def tensor(self, handle, type):
    self.handle, self.type, self.dtype = handle, type, type.scalar
    self.shape, self.numel = type.of_tensors if type.is_block() else NO_SHAPE


def hasten():
    """Makes the interpreter faster where kernels run in it, if it is one that this was written for."""
    if not (triton.knobs.runtime.interpret and triton.__version__.startswith(KNOWN)):
        return
    # Overflow is looked for in every operation, and told with `debug` alone.
    assert not interpreter.interpreter_builder.options.debug
    interpreter.interpreter_builder.options = interpreter.InterpreterOptions(sanitize_overflow=False)
    interpreter._get_np_dtype = numpy_types(interpreter._get_np_dtype)
    typed_when_asked(core.tuple)
    once_each(core.block_type)
    core.tensor.__init__ = tensor
    interpreter._patch_lang = Replaced(interpreter._patch_lang)
