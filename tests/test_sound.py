"""Sound: WAV files of every kind against their samples, resampling against sines, log-mels against NumPy, stores, batches."""

from __future__ import annotations

import json
import mmap
import struct
import wave
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from regard.data.builtin import tones
from regard.data.sound.augment import changed_frames, changed_wave, coloured, with_noise
from regard.data.sound.batches import SoundBatches
from regard.data.sound.config import SoundAugmentConfig, SoundFormat, SoundsConfig, SpeechConfig, are_sounds
from regard.data.sound.features import heard, log_mel, resample
from regard.data.sound.load import load_sounds
from regard.data.sound.sets import read_sounds
from regard.data.sound.store import open_frames, open_sounds
from regard.data.sound.waves import SoundError, pieces, read_sound, read_wav, sound_info, write_wav
from regard.errors import RegardError, UsageError

DICE = np.random.default_rng(5)
SAMPLES = np.round(DICE.uniform(-0.9, 0.9, (101, 3)) * 128) / 128  # exact in 8 bits, three channels
FORMAT = SoundFormat(rate=8000, mels=23, normalise="mean")


def riff(code: int, bits: int, data: bytes, *, rate: int = 7000, channels: int = 3, extra: bytes = b"") -> bytes:
    """A WAV file as the specification has it, with a chunk that nobody knows before the samples."""
    block = channels * bits // 8
    form = struct.pack("<HHIIHH", code, channels, rate, rate * block, block, bits) + extra
    chunks = b"".join(
        name + struct.pack("<I", len(body)) + body + b"\0" * (len(body) % 2)
        for name, body in ((b"LIST", b"odd"), (b"fmt ", form), (b"data", data))
    )
    return b"RIFF" + struct.pack("<I", 4 + len(chunks)) + b"WAVE" + chunks


def in_24_bits(samples: np.ndarray) -> bytes:
    return b"".join(int(each * 2**23).to_bytes(3, "little", signed=True) for each in samples.ravel())


KINDS = {
    "8 bits": (1, 8, (SAMPLES * 128 + 128).astype(np.uint8).tobytes(), b""),
    "16 bits": (1, 16, (SAMPLES * 2**15).astype("<i2").tobytes(), b""),
    "24 bits": (1, 24, in_24_bits(SAMPLES), b""),
    "32 bits": (1, 32, (SAMPLES * 2**31).astype("<i4").tobytes(), b""),
    "float": (3, 32, SAMPLES.astype("<f4").tobytes(), b""),
    "double": (3, 64, SAMPLES.astype("<f8").tobytes(), b""),
    "extensible": (
        0xFFFE,
        16,
        (SAMPLES * 2**15).astype("<i2").tobytes(),
        struct.pack("<HHIH", 22, 16, 7, 1) + b"x" * 14,
    ),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_wav_file_of_every_kind_is_the_mean_of_its_channels(kind: str, tmp_path: Path) -> None:
    code, bits, data, extra = KINDS[kind]
    path = tmp_path / "a.wav"
    path.write_bytes(riff(code, bits, data, extra=extra))
    found = read_wav(path)
    assert found.rate == 7000 and sound_info(path).frames == 101
    np.testing.assert_allclose(found.samples, SAMPLES.mean(axis=1), atol=1e-6)
    part = read_sound(path, start=11 / 7000, seconds=13 / 7000)
    np.testing.assert_allclose(part.samples, SAMPLES.mean(axis=1)[11:24], atol=1e-6)


def test_what_is_written_is_read_again_also_by_the_standard_library(tmp_path: Path) -> None:
    path = write_wav(tmp_path / "a.wav", SAMPLES[:, 0] * 1.5, 8000)  # some are too loud
    np.testing.assert_allclose(read_wav(path).samples, np.clip(SAMPLES[:, 0] * 1.5, -1, 1), atol=1 / 32768)
    with wave.open(str(path)) as file:
        assert (file.getframerate(), file.getnchannels(), file.getnframes()) == (8000, 1, 101)


BROKEN = {
    "cut off": (riff(1, 16, b"12" * 303)[:-9], "cut off"),
    "no samples": (riff(1, 16, b"")[:-8], "no samples"),
    "not a number": (riff(3, 32, np.full(9, np.nan, "<f4").tobytes()), "no numbers"),
    "odd blocks": (riff(1, 16, b"1" * 12, channels=0), "broken"),
    "a-law": (riff(6, 8, b"1" * 12), "compressed"),
    "text": (b"hello", "no WAV"),
    "empty": (b"", "no WAV"),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_a_broken_file_is_refused_by_name(kind: str, tmp_path: Path) -> None:
    data, why = BROKEN[kind]
    path = tmp_path / "bad.wav"
    path.write_bytes(data)
    with pytest.raises(SoundError, match=why) as error:
        read_wav(path)
    assert "bad.wav" in str(error.value)


def test_a_file_that_was_written_to_a_pipe_has_all_samples_up_to_its_end(tmp_path: Path) -> None:
    data = bytearray(riff(1, 16, (SAMPLES * 2**15).astype("<i2").tobytes()))
    place = data.index(b"data") + 4
    data[place : place + 4] = b"\xff\xff\xff\xff"
    (tmp_path / "a.wav").write_bytes(data)
    assert len(read_wav(tmp_path / "a.wav").samples) == 101


def test_flac_is_read_by_soundfile(tmp_path: Path) -> None:
    soundfile = pytest.importorskip("soundfile")
    soundfile.write(tmp_path / "a.flac", SAMPLES, 7000, subtype="PCM_16")
    np.testing.assert_allclose(read_sound(tmp_path / "a.flac").samples, SAMPLES.mean(axis=1), atol=1e-4)
    assert sound_info(tmp_path / "a.flac").frames == 101
    (tmp_path / "b.flac").write_bytes(b"nothing")
    with pytest.raises(SoundError, match=r"b\.flac"):
        read_sound(tmp_path / "b.flac")


def test_a_long_sound_comes_in_pieces_that_end_in_silence(tmp_path: Path) -> None:
    samples = np.where(np.arange(8000 * 5) % 8000 < 6800, DICE.uniform(-0.5, 0.5, 8000 * 5), 0.0)  # pauses of 0.15 s
    path = write_wav(tmp_path / "long.wav", samples, 8000)
    found = list(pieces(path, 2.0))
    assert len(found) >= 3 and all(len(sound.samples) <= 16_000 for _, sound in found)
    np.testing.assert_allclose(np.concatenate([sound.samples for _, sound in found]), samples, atol=1e-4)
    for start, sound in found[:-1]:
        assert abs(samples[int(round(start + sound.seconds, 5) * 8000)]) < 1e-9 or (start + sound.seconds) % 1 > 0.85


@pytest.mark.parametrize(
    ("rate", "wanted"), [(8000, 16_000), (44_100, 16_000), (16_000, 8000), (40, 37), (7000, 11_000)]
)
def test_resampling_keeps_a_sine_and_cuts_what_is_too_high(rate: int, wanted: int) -> None:
    pitch = 0.21 * min(rate, wanted)
    time = np.arange(3 * 997) / rate
    found = resample(np.sin(2 * np.pi * pitch * time), rate, wanted)
    assert len(found) == -(-len(time) * wanted // rate)
    expected = np.sin(2 * np.pi * pitch * np.arange(len(found)) / wanted)
    np.testing.assert_allclose(found[99:-99], expected[99:-99], atol=1e-3)
    if 1.12 * wanted < rate:
        high = np.sin(2 * np.pi * 0.56 * wanted * time)
        assert np.abs(resample(high, rate, wanted)[99:-99]).max() < 1e-3  # 60 dB down


def mel_by_hand(samples: np.ndarray, sound: SoundFormat) -> np.ndarray:
    """Frame by frame, a plain Fourier sum, and triangles bin by bin."""
    size, hop, length = sound.transform, sound.hop_samples, sound.window_samples
    window = np.zeros(size)
    start = (size - length) // 2
    window[start : start + length] = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(length) / length)
    padded = np.concatenate([np.zeros(size // 2), samples, np.zeros(size // 2)])
    top = 2595 * np.log10(1 + sound.rate / 2 / 700)
    edges = [700 * (10 ** (top * place / (sound.mels + 1) / 2595) - 1) for place in range(sound.mels + 2)]
    rows = []
    for frame in range(1 + len(samples) // hop):
        power = np.abs(np.fft.fft(padded[frame * hop : frame * hop + size] * window)[: size // 2 + 1]) ** 2
        row = []
        for low, middle, high in zip(edges, edges[1:], edges[2:], strict=False):
            total = 0.0
            for bin_, energy in enumerate(power):
                hertz = bin_ * sound.rate / size
                if low < hertz < high:
                    total += energy * (
                        (hertz - low) / (middle - low) if hertz < middle else (high - hertz) / (high - middle)
                    )
            row.append(np.log(max(total, 1e-10)))
        rows.append(row)
    return np.array(rows)


def test_log_mel_frames_are_those_of_a_plain_computation() -> None:
    samples = DICE.uniform(-1, 1, 1013)
    found = log_mel(torch.from_numpy(samples), FORMAT)
    np.testing.assert_allclose(found.numpy(), mel_by_hand(samples, FORMAT), atol=1e-9)


def test_a_sound_is_heard_among_others_as_alone_and_silence_is_the_floor() -> None:
    long, short = (DICE.uniform(-1, 1, size).astype(np.float32) for size in (2003, 811))
    frames, lengths = heard([long, short, np.zeros(1201, np.float32)], FORMAT)
    alone, count = heard([short], FORMAT)
    assert lengths[1] == count[0] == 1 + 811 // 80
    torch.testing.assert_close(frames[1, : lengths[1]], alone[0])
    assert float(frames[2].abs().max()) == 0.0 and float(frames[1, lengths[1] :].abs().max()) == 0.0
    torch.testing.assert_close(frames[0].mean(dim=0), torch.zeros(23), atol=1e-4, rtol=0)


def test_changes_of_a_sound_follow_from_their_key() -> None:
    samples = tones.tone(1, 0)[0].astype(np.float32)
    augment = SoundAugmentConfig(speed=0.2, noise=10.0, tract=0.2, tempo=0.2, colour=3, time_masks=2, mel_masks=2)
    one, again, other = (changed_wave(samples, augment, key) for key in ((1, 2, 3), (1, 2, 3), (1, 2, 4)))
    np.testing.assert_array_equal(one, again)
    assert len(one) != len(other) or not np.array_equal(one, other)
    frames = heard([samples], FORMAT)[0][0].numpy()
    a, b = (changed_frames(frames, augment, (1, 2, 3)) for _ in range(2))
    np.testing.assert_array_equal(a, b)
    assert a.shape[1] == 23 and len(a) != 0
    np.testing.assert_array_equal(changed_frames(frames, SoundAugmentConfig(), (1,)), frames)


def test_speed_moves_the_pitch_and_tempo_does_not() -> None:
    """A sine at k / 40 of its speed has k / 40 of its pitch and 40 / k of its length; another tempo keeps its band."""
    samples = np.sin(2 * np.pi * 1000 * np.arange(4001) / 8000).astype(np.float32)
    seen = set()
    for seed in range(7):
        found = changed_wave(samples, SoundAugmentConfig(speed=0.25), (seed,))
        times = 4001 / len(found)
        pitch = np.abs(np.fft.rfft(found * np.hanning(len(found)), 1 << 16)).argmax() * 8000 / (1 << 16)
        assert pitch == pytest.approx(1000 * times, rel=2e-3) and abs(times * 40 - round(times * 40)) < 0.02
        seen.add(round(times * 40))
    assert len(seen) > 2 and min(seen) >= 30 and max(seen) <= 50
    frames = np.zeros((53, 41), np.float32)
    frames[:, 17] = np.arange(53)
    lengths = set()
    for seed in range(5):
        varied = changed_frames(frames, SoundAugmentConfig(tempo=0.3), (seed,))
        lengths.add(len(varied))
        np.testing.assert_allclose(varied[:, 17], np.linspace(0, 52, len(varied)), rtol=1e-4)
        assert not np.delete(varied, 17, axis=1).any()
    assert len(lengths) > 2 and all(0.69 * len(frames) < each < 1.31 * len(frames) for each in lengths)


def test_noise_is_as_loud_as_asked_and_hidden_stretches_are_zero() -> None:
    samples = np.sin(np.arange(5003) / 7).astype(np.float32)
    noise = with_noise(samples, 20.0, np.random.default_rng(1)) - samples
    assert 10 * np.log10((samples**2).mean() / (noise**2).mean()) == pytest.approx(20, abs=0.01)
    frames = np.ones((97, 23), np.float32)
    hidden = changed_frames(frames, SoundAugmentConfig(time_masks=1, mel_masks=3, time_share=0.5), (3,))
    rows, columns = (hidden == 0).all(axis=1), (hidden == 0).all(axis=0)
    assert rows.any() and columns.any() and rows.sum() <= 48 and columns.sum() <= 12
    assert (hidden[np.ix_(~rows, ~columns)] == 1).all()
    curves = np.stack([coloured(41, 3.0, np.random.default_rng(seed)) for seed in range(300)])
    assert 10 / np.log(10) * curves.std() == pytest.approx(3.0, abs=0.3)


def test_a_stretched_tract_moves_a_band() -> None:
    frames = np.zeros((5, 41), np.float32)
    frames[:, 20] = 1.0
    found = [changed_frames(frames, SoundAugmentConfig(tract=0.3), (seed,)).sum(axis=0).argmax() for seed in range(20)]
    assert min(found) < 20 < max(found) and min(found) >= 15 and max(found) <= 28


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two classes of sounds, a manifest of both, and files of no use."""
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))
    rows = []
    for number in range(14):
        samples, label = tones.tone(3, number)
        which = "high" if number % 2 else "low"
        path = write_wav(tmp_path / "sounds" / which / f"{number}.wav", samples[: 1500 + 37 * number], 8000)
        rows.append({"audio": f"sounds/{which}/{path.name}", "text": f"it is {label}", "label": which})
    write_wav(tmp_path / "sounds" / "low" / "silent.wav", np.zeros(4000), 8000)
    write_wav(tmp_path / "sounds" / "low" / "long.wav", DICE.uniform(-1, 1, 8000 * 3), 8000)
    (tmp_path / "sounds" / "low" / "cut.wav").write_bytes(b"RIFF1234WAVEfmt ")
    (tmp_path / "sounds" / "low" / "empty.wav").write_bytes(riff(1, 16, b""))
    rows += [{"audio": "sounds/none.wav", "text": "gone", "label": "low"}, {"audio": "sounds/low/0.wav", "text": ""}]
    (tmp_path / "all.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return tmp_path


def test_what_cannot_be_used_is_left_out_by_name(folder: Path) -> None:
    found = read_sounds([str(folder / "sounds")], "label")
    store = open_sounds(found, 8000, 2.0)
    why = {Path(name).name: reason for name, reason in store.left_out}
    assert set(why) == {"silent.wav", "long.wav", "cut.wav", "empty.wav"} and len(store) == 14
    assert "silent" in why["silent.wav"] and "max_seconds 2" in why["long.wav"] and "4 of 18" in store.notes[0]
    manifest = read_sounds([str(folder / "all.jsonl")], "text")
    assert len(manifest) == 14 and len(manifest.left_out) == 2 and manifest.told[0].startswith("it is")


def test_kept_sounds_and_frames_are_those_of_the_files(folder: Path) -> None:
    found = read_sounds([str(folder / "all.jsonl")], "text")
    for _ in range(2):  # made, then found
        store = open_sounds(found, 4000, 9.0)
        frames = open_frames(store, SoundFormat(rate=4000, mels=11))
        for row in (0, 5, 13):
            wanted = resample(read_wav(found.paths[row]).samples, 8000, 4000)
            np.testing.assert_allclose(store.wave(row), wanted, atol=1 / 32768)
            again, _ = heard([store.wave(row)], SoundFormat(rate=4000, mels=11))
            np.testing.assert_array_equal(frames[row], again[0].numpy())
    assert is_mapped(frames.values) and is_mapped(store.samples.values) and not is_mapped(np.zeros(3))
    kept = next((folder / "cache").rglob("*.frames"))
    kept.write_bytes(kept.read_bytes()[:-5])  # one that is not whole is made anew
    assert len(open_frames(store, SoundFormat(rate=4000, mels=11))) == 14


def is_mapped(values: Any) -> bool:
    """Whether an array is a view of a mapped file."""
    while isinstance(values, np.ndarray | memoryview):
        values = values.base if isinstance(values, np.ndarray) else values.obj
    return isinstance(values, mmap.mmap)


def test_batches_are_a_function_of_the_seed_and_have_every_sound(folder: Path) -> None:
    sets = load_sounds(SoundsConfig(train=(str(folder / "all.jsonl"),), hold_out=3, mels=11), "label")
    assert sets.labels() == ("high", "low") and len(sets.train) + len(sets.valid) == 14
    plain, varied = (
        SoundBatches(sets.train, sets.labels(), 90, 1, augment)
        for augment in (None, SoundAugmentConfig(speed=0.1, time_masks=1))
    )
    for batches in (plain, varied):
        rows = np.concatenate([batches.plan(3)[index] for index in range(batches.count(3))])
        assert sorted(rows.tolist()) == list(range(len(sets.train)))
        one, again = batches.get(3, 0), batches.get(3, 0)
        torch.testing.assert_close(one.frames, again.frames, atol=0, rtol=0)
    first = plain.get(0, 0)
    for row, frames, length in zip(plain.plan(0)[0], first.frames, first.lengths.tolist(), strict=True):
        np.testing.assert_array_equal(frames[:length].numpy(), sets.train.frames()[int(sets.train.rows[row])])
    with pytest.raises(RegardError, match="batch_tokens"):
        SoundBatches(sets.train, sets.labels(), 10, 1)


def test_built_in_keys_are_the_tones_of_a_telephone() -> None:
    samples, words = tones.dialled(1, 4)
    assert set(words.split()) <= set("0123456789*#ABCD") and 3 <= len(words.split()) <= 7
    loud = np.abs(np.fft.rfft(samples)) ** 2
    hertz = np.fft.rfftfreq(len(samples), 1 / tones.RATE)
    near = sum(loud[np.abs(hertz - pitch) < 25].sum() for pitch in (*tones.ROWS, *tones.COLUMNS))
    assert near / loud[hertz > 100].sum() > 0.6
    np.testing.assert_array_equal(samples, tones.dialled(1, 4)[0])
    sets = load_sounds(SpeechConfig(builtin_size=12, hold_out=5), "text")
    assert len(sets.train) == 12 and len(sets.valid) == 5 and sets.format.rate == 8000
    with pytest.raises(UsageError, match="builtin/keys"):
        read_sounds(["builtin/kys"], "text")


def test_sets_of_sounds_are_told_from_texts_and_pictures(folder: Path) -> None:
    assert (
        are_sounds([str(folder / "sounds")])
        and are_sounds([str(folder / "all.jsonl")])
        and are_sounds(["builtin/tones"])
    )
    (folder / "texts.csv").write_text("text,label\nI heard a wave,good\n")
    assert not are_sounds([str(folder / "texts.csv")]) and not are_sounds(["builtin/names"])
    (folder / "sounds.csv").write_text("audio,label\nsounds/low/0.wav,low\nsounds/high/1.wav,high\n")
    assert (
        are_sounds([str(folder / "sounds.csv")])
        and read_sounds([str(folder / "sounds.csv")], "label").told[1] == "high"
    )
