"""Matrix products for one core, written in LLVM's vectors.

Each thread computes the recurrent product of a step for its own rows of the batch, without leaving compiled code. BLAS,
called by function pointer, is as fast below 16 rows (0.93 to 1.15 times). At 32 rows and large sizes this is 1.5 to 3.4
times faster, because the weights are packed once for all steps: the right operand into panels as wide as a tile. One
tile of the result stays in registers throughout the loop over the inner dimension. That is split into blocks, so that a
block of a panel stays in the L1 cache for all rows. Meanwhile the next block is prefetched: at large sizes the panels
lie in the L3 cache, or beyond.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import llvmlite.binding as llvm
import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils

from .compilation import compiled, lowered

# Vectors of the processor's width, and tiles that fill its registers but leave room for the operands: 8 x 2 of 32
# with AVX-512, 4 x 3 of 16 otherwise.
_WIDE = bool(llvm.get_host_cpu_features().get("avx512f", False))
VECTOR_BYTES = 64 if _WIDE else 32
TILE_ROWS, TILE_VECTORS = (8, 2) if _WIDE else (4, 3)
PANEL_BYTES = VECTOR_BYTES * TILE_VECTORS
# No literals, for each of which Numba would compile another version of what they are passed to.
ZERO, ONE = np.int64(0), np.int64(1)
INNER = 256  # of the inner dimension at a time: 32 KiB of a panel with AVX-512
# Block size of the left operand: half an L2 cache. Up to this size it is used in place; larger operands are copied,
# because each of their rows is then on a separate page.
BLOCK_BYTES = 512 * 1024


def _make_tile(rows: int) -> Any:
    """A function that adds a product to a tile of `rows` rows and a panel's width."""

    def typed(
        typingctx: Any,
        a: Any,
        a_start: Any,
        a_row: Any,
        a_step: Any,
        b: Any,
        b_start: Any,
        inner: Any,
        c: Any,
        c_start: Any,
        c_row: Any,
        fetch_start: Any,
        fetch_step: Any,
    ) -> Any:
        signature = types.void(a, *(types.intp,) * 3, b, *(types.intp,) * 2, c, *(types.intp,) * 4)
        return signature, _tile_code(rows)

    @lowered(typed)
    def tile(
        a: np.ndarray,
        a_start: int,
        a_row: int,
        a_step: int,
        b: np.ndarray,
        b_start: int,
        inner: int,
        c: np.ndarray,
        c_start: int,
        c_row: int,
        fetch_start: int,
        fetch_step: int,
    ) -> None:
        """Compute c += a b, for a part of each.

        Args:
            a, b, c: flat. b is a panel, from `b_start` on.
            a_start, c_start: where the tile's first row begins.
            a_row, c_row: steps from row to row.
            a_step: along the inner dimension, of length `inner`.
            fetch_start, fetch_step: where to prefetch from in b meanwhile, and the step along the inner dimension.
        """
        width = panel_width(b)
        for i in range(rows):
            sums = c[c_start + i * c_row :][:width]
            for k in range(inner):
                sums += a[a_start + i * a_row + k * a_step] * b[b_start + k * width :][:width]

    return tile


def _tile_code(rows: int) -> Any:
    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        a, a_start, a_row, a_step, b, b_start, inner, c, c_start, c_row, fetch_start, fetch_step = arguments
        single = signature.args[0].dtype == types.float32
        size = 4 if single else 8
        lanes = VECTOR_BYTES // size
        vector = ir.VectorType(ir.FloatType() if single else ir.DoubleType(), lanes)
        word = ir.IntType(64)

        def number(value: int) -> Any:
            return ir.Constant(word, value)

        def data(array: Any, place: int, start: Any) -> Any:
            return builder.gep(context.make_array(signature.args[place])(context, builder, array).data, [start])

        def load_vector(pointer: Any) -> Any:
            return builder.load(builder.bitcast(pointer, vector.as_pointer()), align=size)

        byte_pointer, flag = ir.IntType(8).as_pointer(), ir.IntType(32)
        prefetch = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(ir.VoidType(), [byte_pointer, *[flag] * 3]), "llvm.prefetch.p0i8"
        )

        def fetch(pointer: Any, to_write: bool) -> None:
            into_first_level, data_cache = 3, 1
            flags = [ir.Constant(flag, value) for value in (int(to_write), into_first_level, data_cache)]
            builder.call(prefetch, [builder.bitcast(pointer, byte_pointer), *flags])

        a_pointer, b_pointer, c_pointer = data(a, 0, a_start), data(b, 4, b_start), data(c, 7, c_start)
        fetch_pointer = data(b, 4, fetch_start)
        fma = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(vector, [vector] * 3), f"llvm.fmuladd.v{lanes}f{8 * size}"
        )
        a_rows = [builder.gep(a_pointer, [builder.mul(number(i), a_row)]) for i in range(rows)]
        c_vectors = [
            [
                builder.gep(c_pointer, [builder.add(builder.mul(number(i), c_row), number(j * lanes))])
                for j in range(TILE_VECTORS)
            ]
            for i in range(rows)
        ]
        for row in c_vectors:
            for pointer in row:
                fetch(pointer, True)
        zero = ir.Constant(vector, [0.0] * lanes)
        before = builder.block
        loop, after = builder.append_basic_block("inner"), builder.append_basic_block("after")
        builder.cbranch(builder.icmp_signed(">", inner, number(0)), loop, after)

        builder.position_at_end(loop)
        k = builder.phi(word)
        sums = [[builder.phi(vector) for _ in row] for row in c_vectors]
        a_place, b_row = builder.mul(k, a_step), builder.mul(k, number(TILE_VECTORS * lanes))
        fetch(builder.gep(fetch_pointer, [builder.mul(k, fetch_step)]), False)
        b_vectors = [
            load_vector(builder.gep(b_pointer, [builder.add(b_row, number(j * lanes))])) for j in range(TILE_VECTORS)
        ]
        undefined = ir.Constant(vector, ir.Undefined)
        everywhere = ir.Constant(ir.VectorType(ir.IntType(32), lanes), [0] * lanes)
        last = []
        for a_pointer, row in zip(a_rows, sums, strict=True):
            element = builder.load(builder.gep(a_pointer, [a_place]))
            spread = builder.insert_element(undefined, element, ir.Constant(ir.IntType(32), 0))
            spread = builder.shuffle_vector(spread, undefined, everywhere)
            last.append([builder.call(fma, [spread, b_vectors[j], row[j]]) for j in range(TILE_VECTORS)])
        following = builder.add(k, number(1))
        k.add_incoming(number(0), before)
        k.add_incoming(following, loop)
        builder.cbranch(builder.icmp_signed("<", following, inner), loop, after)

        builder.position_at_end(after)
        results = []
        for i in range(rows):
            for j in range(TILE_VECTORS):
                sums[i][j].add_incoming(zero, before)
                sums[i][j].add_incoming(last[i][j], loop)
                result = builder.phi(vector)
                result.add_incoming(zero, before)
                result.add_incoming(last[i][j], loop)
                results.append((result, c_vectors[i][j]))
        for result, pointer in results:
            total = builder.fadd(load_vector(pointer), result)
            builder.store(total, builder.bitcast(pointer, vector.as_pointer()), align=size)
        return context.get_dummy_value()

    return codegen


def _make_move(count: Callable[[int], int]) -> Any:
    """A function that copies `count(bytes of an element)` neighbours."""

    def typed(typingctx: Any, source: Any, source_start: Any, target: Any, target_start: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            single = signature.args[0].dtype == types.float32
            element, size = (ir.FloatType(), 4) if single else (ir.DoubleType(), 8)
            vector = ir.VectorType(element, count(size)).as_pointer()
            source, target = (
                builder.bitcast(
                    builder.gep(
                        context.make_array(signature.args[i])(context, builder, arguments[i]).data, [arguments[i + 1]]
                    ),
                    vector,
                )
                for i in (0, 2)
            )
            builder.store(builder.load(source, align=size), target, align=size)
            return context.get_dummy_value()

        return types.void(source, types.intp, target, types.intp), codegen

    @lowered(typed)
    def move(source: np.ndarray, source_start: int, target: np.ndarray, target_start: int) -> None:
        n = count(source.itemsize)
        target[target_start:][:n] = source[source_start:][:n]

    return move


_move_tile = _make_move(lambda size: TILE_ROWS)
_move_panel = _make_move(lambda size: PANEL_BYTES // size)
_tile = _make_tile(TILE_ROWS)
_tile_of_two = _make_tile(2)
_tile_of_one = _make_tile(1)


@compiled
def panel_width(like: np.ndarray) -> int:
    """Columns of a panel, for arrays of this type."""
    return PANEL_BYTES // like.itemsize


def padded(columns: int, dtype: np.dtype) -> int:
    """The number of columns rounded up to whole panels."""
    width = PANEL_BYTES // dtype.itemsize
    return -(-columns // width) * width


def panels(rows: int, columns: int, dtype: np.dtype, *leading: int) -> np.ndarray:
    """Zeros for packed matrices [K, N]: [..., panels, K, width]; see `packing`, which fills them."""
    width = PANEL_BYTES // dtype.itemsize
    return np.zeros((*leading, padded(columns, dtype) // width, rows, width), dtype)


@compiled
def _row_of_tiles(
    a: np.ndarray,
    a_start: int,
    a_row: int,
    a_step: int,
    a_tile: int,
    rows: int,
    b: np.ndarray,
    b_start: int,
    inner: int,
    c: np.ndarray,
    c_start: int,
    c_row: int,
    fetched: int,
) -> None:
    """Compute all rows of one panel of the result for a block of the inner dimension, in the tallest possible tiles.

    Meanwhile another block of b is prefetched, an equal part of it by each tile.

    Args:
        a_row, a_step, a_tile: steps in a: from row to row of a tile, along the inner dimension, and from tile to tile.
        fetched: where that block starts.
    """
    step = max(1, panel_width(b) // max(1, rows // TILE_ROWS))
    row, start, into = 0, a_start, c_start
    while row + TILE_ROWS <= rows:
        _tile(a, start, a_row, a_step, b, b_start, inner, c, into, c_row, fetched, step)
        start, into, fetched = start + a_tile, into + TILE_ROWS * c_row, fetched + inner * step
        row += TILE_ROWS
    while row + 2 <= rows:
        _tile_of_two(a, start, a_row, a_step, b, b_start, inner, c, into, c_row, fetched, 0)
        start, into = start + 2 * a_row, into + 2 * c_row
        row += 2
    if row < rows:
        _tile_of_one(a, start, a_row, a_step, b, b_start, inner, c, into, c_row, fetched, 0)


@compiled
def multiply_add(
    a: np.ndarray, a_start: int, a_row: int, rows: int, panels: np.ndarray, c: np.ndarray, c_start: int, c_row: int
) -> None:
    """Compute c += a @ matrix.

    Args:
        a: flat; row i is a[a_start + i * a_row :][: K].
        rows: of a and c.
        panels: a matrix [K, N] as panels [padded(N) / width, K, width] that end in zeros.
        c: flat; row i is c[c_start + i * c_row :][: padded(N)].
    """
    inner, width = panels.shape[1], panels.shape[2]
    b = panels.reshape(-1)
    for panel in range(panels.shape[0]):
        for k in range(0, inner, INNER):
            start, piece, first = (panel * inner + k) * width, min(INNER, inner - k), a_start + k
            tile, into, behind = TILE_ROWS * a_row, c_start + panel * width, start + piece * width
            _row_of_tiles(a, first, a_row, ONE, tile, rows, b, start, piece, c, into, c_row, behind)


@compiled
def _pack_left(a: np.ndarray, start: int, a_row: int, inner: int, rows: int, packed: np.ndarray) -> None:
    """Copy columns of a to tiles [rows / TILE_ROWS, inner, TILE_ROWS].

    Some rows of a at a time, because at large sizes each is on a separate page.
    """
    for first in range(0, inner, 16):
        last = min(first + 16, inner)
        for tile in range(0, rows, TILE_ROWS):
            source, target = start + tile, tile * inner
            if tile + TILE_ROWS <= rows:
                for k in range(first, last):
                    _move_tile(a, source + k * a_row, packed, target + k * TILE_ROWS)
            else:
                for k in range(first, last):
                    for i in range(rows - tile):
                        packed[target + k * TILE_ROWS + i] = a[source + k * a_row + i]


@compiled
def _pack_right(b: np.ndarray, start: int, b_row: int, inner: int, columns: int, packed: np.ndarray) -> None:
    """Copy columns of b to one panel [inner, width], padded with zeros."""
    width = panel_width(b)
    if columns == width:
        for k in range(inner):
            _move_panel(b, start + k * b_row, packed, k * width)
        return
    for k in range(inner):
        for j in range(columns):
            packed[k * width + j] = b[start + k * b_row + j]
        for j in range(columns, width):
            packed[k * width + j] = 0


def packing_room(a_row: int, itemsize: int) -> int:
    """The workspace size of `add_transposed_product`, in elements."""
    copied = BLOCK_BYTES if INNER * a_row * itemsize > BLOCK_BYTES else 0
    return (INNER * PANEL_BYTES + copied) // itemsize


@compiled
def add_transposed_product(
    a: np.ndarray,
    a_row: int,
    b: np.ndarray,
    b_row: int,
    n: int,
    rows: int,
    columns: int,
    c: np.ndarray,
    room: np.ndarray,
) -> None:
    """Compute c += a^T b.

    Args:
        a: flat; [n, rows], from row to row a_row.
        b: flat; [n, columns], from row to row b_row.
        c: [rows, padded(columns)], contiguous.
        room: workspace of at least `packing_room(a_row)` elements.
    """
    width, c_row, flat_c, tile = panel_width(c), c.shape[1], c.reshape(-1), ONE * TILE_ROWS
    panel, block = room[: INNER * width], room[INNER * width :]
    copies = INNER * a_row * c.itemsize > BLOCK_BYTES
    at_a_time = BLOCK_BYTES // (INNER * c.itemsize) if copies else max(1, rows)
    for k in range(0, n, INNER):
        inner = min(INNER, n - k)
        for row in range(0, rows, at_a_time):
            high, start = min(at_a_time, rows - row), k * a_row + row
            if copies:
                _pack_left(a, start, a_row, inner, high, block)
            for column in range(0, columns, width):
                _pack_right(b, k * b_row + column, b_row, inner, min(width, columns - column), panel)
                into = row * c_row + column
                if copies:
                    packed = inner * tile
                    _row_of_tiles(block, ZERO, ONE, tile, packed, high, panel, ZERO, inner, flat_c, into, c_row, ZERO)
                else:
                    _row_of_tiles(a, start, ONE, a_row, tile, high, panel, ZERO, inner, flat_c, into, c_row, ZERO)
