"""Pictures from files: every mode and orientation, what cannot be read, and how a picture is fitted, and back again."""

from __future__ import annotations

import copy
import io
import random
import struct
import subprocess
import sys
import threading
import warnings
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from regard.data.pictures.config import PictureFormat
from regard.data.pictures.decode import PictureError, _pixels, fit_picture, fitted, quiet, read_picture
from regard.errors import RegardError, UsageError

HEIGHT, WIDTH = 7, 11
RANDOM = np.random.default_rng(5)
COLOURS = RANDOM.integers(0, 256, (HEIGHT, WIDTH, 3), dtype=np.uint8)
GREY = COLOURS[:, :, 0]


def encoded(image: Image.Image, kind: str = "PNG", **options: object) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def png_header(width: int, height: int) -> bytes:
    """The start of a PNG of a given size, by the specification: signature, IHDR, and no pixels."""
    ihdr = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    idat = b"IDAT" + zlib.compress(b"")
    chunks = [struct.pack(">I", len(each) - 4) + each + struct.pack(">I", zlib.crc32(each)) for each in (ihdr, idat)]
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


@pytest.fixture(autouse=True)
def no_warnings() -> object:
    """Whatever warns, fails; Pillow's limit stays as it was."""
    limit = Image.MAX_IMAGE_PIXELS
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield
        assert limit == Image.MAX_IMAGE_PIXELS


# -- modes -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["PNG", "BMP", "TIFF", "PPM"])
def test_colours_are_as_written_from_bytes_and_from_a_path(tmp_path: Path, kind: str) -> None:
    data = encoded(Image.fromarray(COLOURS), kind)
    (tmp_path / "a.picture").write_bytes(data)
    for source in (data, tmp_path / "a.picture"):
        read = read_picture(source)
        assert read.dtype == np.uint8 and read.flags.writeable
        np.testing.assert_array_equal(read, COLOURS)


@pytest.mark.parametrize("kind", ["JPEG", "WEBP", "GIF", "JPEG2000"])
def test_a_plain_colour_survives_lossy_formats(kind: str) -> None:
    read = read_picture(encoded(Image.new("RGB", (WIDTH, HEIGHT), (200, 100, 50)), kind))
    assert read.shape == (HEIGHT, WIDTH, 3)
    assert np.abs(read.astype(int) - (200, 100, 50)).max() <= 4


def test_grey_and_colours_become_each_other() -> None:
    np.testing.assert_array_equal(read_picture(encoded(Image.fromarray(GREY)), 1)[:, :, 0], GREY)
    np.testing.assert_array_equal(read_picture(encoded(Image.fromarray(GREY))), np.repeat(GREY[:, :, None], 3, axis=2))
    luma = COLOURS @ np.array([0.299, 0.587, 0.114])  # ITU-R 601-2
    assert np.abs(read_picture(encoded(Image.fromarray(COLOURS)), 1)[:, :, 0] - luma).max() <= 1
    with pytest.raises(UsageError, match="not 4"):
        read_picture(encoded(Image.fromarray(GREY)), 4)


def test_a_palette() -> None:
    image = Image.new("P", (3, 1))
    image.putpalette([10, 20, 30, 40, 50, 60, 70, 80, 90])
    image.putdata([2, 0, 1])
    np.testing.assert_array_equal(read_picture(encoded(image)), [[[70, 80, 90], [10, 20, 30], [40, 50, 60]]])
    clear = encoded(image, transparency=b"\xff\x00\x80")  # the alpha of each colour of the palette, as bytes
    half = [round(128 / 255 * c + 127 / 255 * 255) for c in (70, 80, 90)]
    assert np.abs(read_picture(clear)[0].astype(int) - [half, [10, 20, 30], [255, 255, 255]]).max() <= 1


def test_one_bit() -> None:
    bits = GREY > 99
    read = read_picture(encoded(Image.fromarray(bits)), 1)
    np.testing.assert_array_equal(read[:, :, 0], np.where(bits, 255, 0))


@pytest.mark.parametrize("channels", [1, 3])
def test_what_is_transparent_lies_on_white(channels: int) -> None:
    grey, alpha = 40, np.array([[0, 64, 128, 255]], dtype=np.uint8)
    wanted = np.rint(grey * (alpha / 255) + 255 * (1 - alpha / 255))[:, :, None]
    layers = [np.full_like(alpha, grey)]
    for mode in ("LA", "RGBA"):
        bands = layers * (1 if mode == "LA" else 3) + [alpha]
        image = Image.merge(mode, [Image.fromarray(band) for band in bands])
        assert np.abs(read_picture(encoded(image), channels) - wanted).max() <= 1, mode


def test_one_colour_that_is_transparent() -> None:
    """PNG's tRNS of grey and of colours: one value that is clear."""
    grey = encoded(Image.fromarray(np.array([[7, 8]], dtype=np.uint8)), transparency=7)
    np.testing.assert_array_equal(read_picture(grey, 1)[0, :, 0], [255, 8])
    colours = encoded(Image.fromarray(np.array([[[1, 2, 3], [1, 2, 4]]], dtype=np.uint8)), transparency=(1, 2, 3))
    np.testing.assert_array_equal(read_picture(colours), [[[255, 255, 255], [1, 2, 4]]])


def test_pa_and_premultiplied_modes() -> None:
    rgba = Image.merge(
        "RGBA", [Image.new("L", (2, 1), value) for value in (200, 100, 0)] + [Image.new("L", (2, 1), 128)]
    )
    wanted = [value * 128 / 255 + 127 for value in (200, 100, 0)]
    assert np.abs(_pixels(rgba.convert("RGBa"), 3) - np.array(wanted)).max() <= 2
    la = Image.merge("LA", [Image.new("L", (2, 1), 200), Image.new("L", (2, 1), 128)])
    assert np.abs(_pixels(la.convert("La"), 1) - (200 * 128 / 255 + 127)).max() <= 2
    palette = Image.new("P", (2, 1))
    palette.putpalette([200, 200, 200])
    palette.putalpha(128)
    assert palette.mode == "PA"
    assert np.abs(_pixels(palette, 1) - (200 * 128 / 255 + 127)).max() <= 2


def test_cmyk() -> None:
    cmyk = Image.merge("CMYK", [Image.new("L", (8, 8), value) for value in (0, 255, 255, 0)])  # magenta and yellow: red
    for kind in ("TIFF", "JPEG"):
        assert np.abs(read_picture(encoded(cmyk, kind)).astype(int) - (255, 0, 0)).max() <= 3, kind


@pytest.mark.parametrize("order", ["<u2", ">u2"])
def test_sixteen_bits_are_scaled_and_not_clipped(order: str) -> None:
    values = np.array([[0, 128, 129, 257, 32768, 65535 - 129, 65535]])
    wanted = [round(value * 255 / 65535) for value in values[0]]
    image = Image.fromarray(values.astype(order))
    assert image.mode == ("I;16" if order == "<u2" else "I;16B")
    assert read_picture(encoded(image, "TIFF"), 1)[0, :, 0].tolist() == wanted
    dark = Image.fromarray(np.array([[257, 514, 5140]], dtype=order))  # not stretched to what is there
    assert read_picture(encoded(dark, "TIFF"), 1)[0, :, 0].tolist() == [1, 2, 20]
    if order == "<u2":
        assert read_picture(encoded(image), 3)[0, :, 2].tolist() == wanted


def test_grey_of_32_bits_and_of_floats() -> None:
    def read(values: list[float], dtype: type) -> list[int]:
        return read_picture(encoded(Image.fromarray(np.array([values], dtype=dtype)), "TIFF"), 1)[0, :, 0].tolist()

    assert read([0, 257, 65535], np.int32) == [0, 1, 255]
    assert read([-100, 20, 100], np.int32) == [0, 153, 255]
    assert read([0.0, 0.2, 1.0], np.float32) == [0, 51, 255]
    assert read([0.0, 3.0, 254.6], np.float32) == [0, 3, 255]
    assert read([100.0, 200.0, 600.0], np.float32) == [0, 51, 255]
    assert read([0.0, float("nan"), 1.0], np.float32) == [0, 0, 255]


def test_the_first_frame_of_an_animation() -> None:
    frames = [Image.new("RGB", (5, 3), colour) for colour in ("red", "blue")]
    for kind in ("GIF", "PNG", "WEBP", "TIFF"):
        read = read_picture(encoded(frames[0], kind, save_all=True, append_images=frames[1:]))
        assert read.shape == (3, 5, 3) and np.abs(read.astype(int) - (255, 0, 0)).max() <= 3, kind


# EXIF 2.3, tag 0x0112: where row 0 and column 0 of the file lie on the upright picture.
UPRIGHT = {
    1: lambda file: file,
    2: lambda file: file[:, ::-1],  # top right
    3: lambda file: file[::-1, ::-1],  # bottom right
    4: lambda file: file[::-1],  # bottom left
    5: lambda file: file.transpose(1, 0, 2),  # left top
    6: lambda file: file.transpose(1, 0, 2)[:, ::-1],  # right top: row 0 is the right side
    7: lambda file: file.transpose(1, 0, 2)[::-1, ::-1],  # right bottom
    8: lambda file: file.transpose(1, 0, 2)[::-1],  # left bottom: row 0 is the left side
}


@pytest.mark.parametrize("orientation", [*UPRIGHT, 9])
def test_a_picture_is_turned_upright(orientation: int) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    wanted = UPRIGHT.get(orientation, UPRIGHT[1])(COLOURS)
    for kind in ("PNG", "TIFF"):
        np.testing.assert_array_equal(read_picture(encoded(Image.fromarray(COLOURS), kind, exif=exif)), wanted)


def test_a_damaged_exif_block_is_no_reason_to_refuse() -> None:
    data = encoded(Image.fromarray(COLOURS), exif=b"Exif\0\0MM\0*\xff\xff\xff\xff")
    np.testing.assert_array_equal(read_picture(data), COLOURS)


# -- what cannot be read -----------------------------------------------------------------------------------------------


def reason(source: Path | bytes) -> str:
    with pytest.raises(PictureError) as caught:
        read_picture(source)
    assert caught.value.reason in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "GIF", "BMP", "WEBP", "TIFF", "PPM", "JPEG2000"])
def test_a_truncated_picture_says_so(tmp_path: Path, kind: str) -> None:
    noise = RANDOM.integers(0, 256, (31, 43, 3), dtype=np.uint8)
    data = encoded(Image.fromarray(noise), kind)
    path = tmp_path / "cut.jpg"
    for share in (0.1, 0.4, 0.9):
        path.write_bytes(data[: int(len(data) * share)])
        message = reason(path)
        assert message.startswith(f"{path}: truncated") and "fetch it again" in message


def test_what_is_no_picture_says_so(tmp_path: Path) -> None:
    assert "the picture: not a picture; formats that can be read: JPEG, PNG" in reason(b"hello, I am a text\n" * 9)
    assert "not a picture" in reason(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n")  # would run Ghostscript
    assert "not a picture" in reason(b"\x10")  # the bug: shorter than a signature, it was a struct.error
    assert "empty" in reason(b"")
    assert "no such file" in reason(tmp_path / "none.png")
    assert "not a file" in reason(tmp_path)


def test_zero_pixels_say_so() -> None:
    assert "zero pixels" in reason(png_header(0, 5))
    assert "zero pixels" in reason(png_header(5, 0))
    assert "zero pixels" in reason(b"GIF89a" + bytes(7) + b";")


def test_no_permission_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object) -> object:
        raise PermissionError(13, "Permission denied")

    (tmp_path / "a.png").write_bytes(encoded(Image.fromarray(COLOURS)))
    monkeypatch.setattr("builtins.open", refuse)
    assert "a.png: cannot be read (Permission denied)" in reason(tmp_path / "a.png")


@pytest.mark.parametrize(("width", "height"), [(50_000, 1_001), (10_000, 9_999), (2**31 - 1, 2**31 - 1)])
def test_a_decompression_bomb_is_refused_from_its_header(width: int, height: int) -> None:
    """Below Pillow's warning, where it warns, and where it raises: the file has no pixels, so nothing was decoded."""
    message = reason(png_header(width, height))
    assert "too large" in message and "50,000,000" in message


def test_the_largest_size_that_is_allowed_is_decoded() -> None:
    assert "truncated" in reason(png_header(50_000, 1_000))


def test_threads_leave_no_filter_behind_and_hear_no_warning() -> None:
    odd = encoded(Image.new("P", (3, 3)), transparency=b"\x00\xff")
    bomb = png_header(10_000, 9_999)
    before, limit = list(warnings.filters), Image.MAX_IMAGE_PIXELS
    failed: list[BaseException] = []

    def work() -> None:
        try:
            for _ in range(40):
                read_picture(odd)
                with pytest.raises(PictureError, match="too large"):
                    read_picture(bomb)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    assert warnings.filters == before and limit == Image.MAX_IMAGE_PIXELS


def test_a_reader_that_ends_leaves_the_others_in_peace() -> None:
    with quiet():
        with quiet():
            pass
        warnings.warn_explicit("an odd file", UserWarning, "x.py", 1, module="PIL.Image")
    with pytest.raises(UserWarning):
        warnings.warn_explicit("an odd file", UserWarning, "x.py", 1, module="PIL.Image")


def test_other_warnings_are_heard() -> None:
    read_picture(encoded(Image.fromarray(COLOURS)))
    with pytest.raises(UserWarning):
        warnings.warn("of someone else", stacklevel=1)


def test_nothing_is_printed(tmp_path: Path) -> None:
    """A TIFF with too many samples makes Pillow log an error, a bomb makes it warn: nothing of it is seen."""
    (tmp_path / "bomb.png").write_bytes(png_header(10_000, 9_999))
    tiff = bytearray(encoded(Image.fromarray(COLOURS), "TIFF"))
    tag = tiff.index(struct.pack("<HHI", 277, 3, 1))  # SamplesPerPixel
    tiff[tag + 8] = 99
    (tmp_path / "odd.tif").write_bytes(tiff)
    program = (
        "import sys\nfrom pathlib import Path\nfrom regard.data.pictures.decode import PictureError, read_picture\n"
        "for name in sys.argv[1:]:\n    try:\n        read_picture(Path(name))\n"
        "    except PictureError:\n        continue\n    sys.exit(name)\n"
    )
    names = [str(tmp_path / "bomb.png"), str(tmp_path / "odd.tif")]
    done = subprocess.run([sys.executable, "-c", program, *names], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "GIF", "BMP", "WEBP", "TIFF", "PPM"])
def test_a_damaged_file_raises_nothing_else(kind: str) -> None:
    whole = encoded(Image.fromarray(COLOURS), kind)
    chance = random.Random(kind)
    for _ in range(60):
        data = bytearray(whole)
        for _ in range(chance.randint(1, 5)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        try:
            assert read_picture(bytes(data)).shape[2] == 3
        except PictureError:
            continue


def test_an_error_from_another_process_is_the_same() -> None:
    error = PictureError("a.jpg", "truncated", "fetch it again")
    twin = copy.copy(error)  # by way of __reduce__, as between processes
    assert (str(twin), twin.reason) == ("a.jpg: truncated; fetch it again", "truncated") == (str(error), error.reason)


# -- fitting -----------------------------------------------------------------------------------------------------------

SHAPES = [(60, 140), (140, 60), (96, 96), (61, 97), (5, 3)]  # (height, width)
FITS = ["crop", "pad", "squash"]


def make_format(
    size: int = 24, fit: str = "crop", channels: int = 3, mean: tuple[float, ...] = (0.5,)
) -> PictureFormat:
    return PictureFormat(size=size, fit=fit, channels=channels, mean=mean)  # type: ignore[arg-type]


@pytest.mark.parametrize("fit", FITS)
@pytest.mark.parametrize("shape", SHAPES)
def test_a_picture_of_its_own_coordinates_shows_where_each_pixel_comes_from(shape: tuple[int, int], fit: str) -> None:
    """Red grows to the right and green downwards: the colour of a fitted pixel tells its place on the original."""
    height, width = shape
    picture = np.zeros((height, width, 3), dtype=np.uint8)
    picture[:, :, 0] = (np.arange(width) + 0.5) / width * 255
    picture[:, :, 1] = (np.arange(height)[:, None] + 0.5) / height * 255
    picture[:, :, 2] = 255
    size = 12
    square = fit_picture(picture, make_format(size, fit, mean=(0.0,)))
    assert square.shape == (size, size, 3) and square.dtype == np.uint8
    where = fitted(shape, make_format(size, fit))
    seen = 0
    for row in range(size):
        for column in range(size):
            left, top, right, bottom = where.cell(row, column, (size, size))
            x, y = (left + right) / 2, (top + bottom) / 2
            inside = 0 <= x <= width and 0 <= y <= height
            assert inside == (square[row, column, 2] > 0), (row, column)  # a border has no blue
            if inside and 0.1 * width < x < 0.9 * width and 0.1 * height < y < 0.9 * height:
                slack = 4 if min(shape) > 50 else 40  # a picture of a few pixels is smooth only roughly
                assert abs(square[row, column, 0] - x / width * 255) <= slack
                assert abs(square[row, column, 1] - y / height * 255) <= slack
                seen += 1
    assert seen > 5


@pytest.mark.parametrize("fit", FITS)
@pytest.mark.parametrize("shape", [(60, 140), (140, 60), (96, 96)])
def test_cells_map_back_to_a_rectangle(shape: tuple[int, int], fit: str) -> None:
    """A red rectangle in the middle third: cells that are red lie on it, cells that are not do not."""
    height, width = shape
    top, left = height // 3, width // 3
    bottom, right = top + height // 4, left + width // 5
    picture = np.zeros((height, width, 3), dtype=np.uint8)
    picture[top:bottom, left:right] = (255, 0, 0)
    grid = (6, 8)
    square = fit_picture(picture, make_format(48, fit, mean=(0.0,)))
    where, found = fitted(shape, make_format(48, fit)), 0
    for row in range(grid[0]):
        for column in range(grid[1]):
            cell = square[row * 8 : (row + 1) * 8, column * 6 : (column + 1) * 6, 0]  # 48 / 6 rows, 48 / 8 columns
            x0, y0, x1, y1 = where.cell(row, column, grid)
            overlap = max(0.0, min(x1, right) - max(x0, left)) * max(0.0, min(y1, bottom) - max(y0, top))
            share = overlap / ((x1 - x0) * (y1 - y0))
            assert abs(cell.mean() / 255 - share) < 0.06, (row, column)
            found += share > 0.3
    assert found > 0


def test_geometry_by_hand() -> None:
    assert fitted((60, 100), make_format(30, "crop")).box == (20, 0, 80, 60)
    assert fitted((100, 61), make_format(30, "crop")).box == (0, 19.5, 61, 80.5)
    assert fitted((60, 100), make_format(30, "squash")).box == (0, 0, 100, 60)
    # 100 wide -> 30, 60 high -> 18 with 6 of border above and below, of 60 / 18 pixels of the original each
    assert fitted((60, 100), make_format(30, "pad")).box == pytest.approx((0, -20, 100, 80))
    assert fitted((100, 60), make_format(30, "pad")).box == pytest.approx((-20, 0, 80, 100))
    assert fitted((60, 100), make_format(30, "crop")).cell(1, 2, (2, 3)) == (60, 30, 80, 60)
    assert fitted((1, 5000), make_format(7, "pad")).box == (0, -3, 5000, 4)  # never thinner than a pixel


def test_borders_have_the_colour_of_the_mean() -> None:
    picture = np.full((10, 20, 3), 255, dtype=np.uint8)
    square = fit_picture(picture, make_format(20, "pad", mean=(0.2, 0.4, 0.6)))
    np.testing.assert_array_equal(square[5:15], 255)
    for border in (square[:5], square[15:]):
        assert (border == (51, 102, 153)).all()
    assert (fit_picture(picture, make_format(20, "pad", channels=1, mean=(0.2,)))[0] == 51).all()


def test_resizing_is_antialiased() -> None:
    """A board of single black and white pixels becomes grey, not black or white."""
    board = np.indices((96, 96)).sum(axis=0) % 2 * 255
    square = fit_picture(board.astype(np.uint8)[:, :, None], make_format(8, channels=1))
    assert square.shape == (8, 8, 1) and np.abs(square.astype(int) - 127).max() <= 12


@pytest.mark.parametrize("fit", FITS)
def test_a_picture_that_fits_is_not_changed(fit: str) -> None:
    picture = RANDOM.integers(0, 256, (13, 13, 3), dtype=np.uint8)
    np.testing.assert_array_equal(fit_picture(picture, make_format(13, fit)), picture)
    grey = fit_picture(picture[:, :, :1], make_format(13, fit))
    np.testing.assert_array_equal(grey, np.repeat(picture[:, :, :1], 3, axis=2))


@pytest.mark.parametrize("picture", [np.zeros((4, 4, 3)), np.zeros((4, 4), np.uint8), np.zeros((0, 4, 3), np.uint8)])
def test_what_is_no_picture_is_not_fitted(picture: np.ndarray) -> None:
    with pytest.raises(RegardError, match="uint8"):
        fit_picture(picture, make_format())


def test_cells_outside_the_grid() -> None:
    with pytest.raises(RegardError, match="no cell"):
        fitted((9, 9), make_format()).cell(0, 3, (4, 3))
    with pytest.raises(RegardError, match="nothing to show"):
        fitted((0, 9), make_format())
