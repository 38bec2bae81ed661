"""Shape files: what a line says, and one clear line for each way it can be wrong."""

import tempfile
import unittest
from pathlib import Path

from peers.shapes import ShapeError, parse_shape, read_shapes

SHAPES = Path(__file__).resolve().parents[2] / "bench" / "shapes"


class ParsedShape(unittest.TestCase):
    def test_a_problem_string_gives_widths_and_sizes(self):
        shape = parse_shape("d2048_h32_kv4_f32_causal:b2_q512")
        self.assertEqual((shape.d_model, shape.num_heads, shape.num_kv_heads, shape.head_dim), (2048, 32, 4, 64))
        self.assertEqual((shape.batch, shape.seq_q, shape.seq_kv, shape.causal), (2, 512, 512, True))

    def test_operations_of_self_attention(self):
        # 8 b s d^2 + 4 b h pairs head_dim
        self.assertEqual(parse_shape("d512_h8_f32:b32_q50").operations, 8 * 32 * 50 * 512**2 + 4 * 32 * 50**2 * 512)
        causal = parse_shape("d512_h8_f32_causal:b1_q4")
        self.assertEqual(causal.operations, 8 * 4 * 512**2 + 4 * 10 * 512)

    def test_padding_counts_valid_tokens(self):
        shape = parse_shape("d512_h8_f32:b4_q8_kv8 padded")
        self.assertEqual(shape.lengths, [2, 4, 6, 8])
        alone = [parse_shape(f"d512_h8_f32:b1_q{length}").operations for length in shape.lengths]
        self.assertEqual(shape.operations, sum(alone))

    def test_a_step_of_decoding_projects_one_token(self):
        shape = parse_shape("d768_h12_f32_causal_cache:b1_q1_kv128 decode")
        self.assertEqual(shape.cached, 127)
        self.assertEqual(shape.operations, 8 * 768**2 + 4 * 128 * 768)

    def test_a_memory_is_not_projected(self):
        shape = parse_shape("d384_h6_f32_cache:b1_q1_kv1500 memory")
        self.assertEqual((shape.cached, shape.cross), (1500, False))
        self.assertEqual(shape.operations, 4 * 384**2 + 4 * 1500 * 384)

    def test_cross_attention_projects_keys_of_its_own(self):
        shape = parse_shape("d384_h6_f32:b1_q64_kv1500")
        self.assertTrue(shape.cross)
        self.assertEqual(shape.operations, 2 * (2 * 64 + 2 * 1500) * 384**2 + 4 * 64 * 1500 * 384)


class WrongShape(unittest.TestCase):
    CASES = {
        "d512": "'d512' is not a problem string as d512_h8_f32:b32_q50_kv50",
        "d512_h8_f32": "'d512_h8_f32' is not a problem string as d512_h8_f32:b32_q50_kv50",
        "d512_h7_f32:b1_q5": "'d512_h7_f32:b1_q5': d_model 512 is not divisible by num_heads 7",
        "d512_h8_f32_alibi:b1_q5": "'d512_h8_f32_alibi:b1_q5': the peers have nothing like 'alibi'; "
        "known are causal, cache, nomask, noprobs",
        "d512_h8_f32:b1_q5 fast": "'fast' after 'd512_h8_f32:b1_q5' is none of padded, decode, memory, probs",
        "d512_h8_f32:b0_q5": "'d512_h8_f32:b0_q5': nothing to time in a call of size 0",
        "d512_h8_f32:b1_q1_kv5 decode": "'d512_h8_f32:b1_q1_kv5': decode and memory go with a configuration with _cache, "
        "and it with one of them",
        "d512_h8_f32_cache:b1_q1_kv5": "'d512_h8_f32_cache:b1_q1_kv5': decode and memory go with a configuration with "
        "_cache, and it with one of them",
        "d512_h8_f32_cache:b1_q1_kv1 decode": "'d512_h8_f32_cache:b1_q1_kv1': decode counts its own keys too, so seq_kv "
        "must be above seq_q 1",
        "d512_h8_f32:b2_q1_kv5 padded": "'d512_h8_f32:b2_q1_kv5': padded is for self-attention without a cache",
        "d512_h8_f32_causal:b1_q4_kv5": "'d512_h8_f32_causal:b1_q4_kv5': causal is for self-attention",
    }

    def test_each_has_its_message(self):
        for text, message in self.CASES.items():
            with self.subTest(text), self.assertRaises(ShapeError) as caught:
                parse_shape(text)
            self.assertEqual(str(caught.exception), message)


class ShapeFile(unittest.TestCase):
    def test_comments_and_empty_lines(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "some.txt"
            path.write_text("\n# all of them\nd512_h8_f32:b1_q5 probs   # a model\n")
            (shape,) = read_shapes(path)
        self.assertEqual((shape.name, shape.model), ("d512_h8_f32:b1_q5 probs", "a model"))

    def test_errors_name_file_and_line(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "some.txt"
            path.write_text("d512_h8_f32:b1_q5\nfrob\n")
            with self.assertRaises(ShapeError) as caught:
                read_shapes(path)
            self.assertEqual(str(caught.exception), f"{path}:2: 'frob' is not a problem string as d512_h8_f32:b32_q50_kv50")
            path.write_text("# nothing\n")
            with self.assertRaisesRegex(ShapeError, "has no shapes$"):
                read_shapes(path)
        with self.assertRaisesRegex(ShapeError, "^cannot read .*: No such file or directory$"):
            read_shapes(path)

    def test_those_of_the_project(self):
        names = [shape.name for shape in read_shapes(SHAPES)]
        self.assertEqual(len(names), len(set(names)))
        quick = [shape.name for shape in read_shapes(SHAPES / "quick.txt")]
        self.assertLessEqual(set(quick), set(names))


if __name__ == "__main__":
    unittest.main()
