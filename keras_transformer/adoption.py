"""SentencePiece models that were trained elsewhere, with the special pieces and the ids that tokenizers have here.

T5:  <pad> </s> <unk> ▁ X ...   ->   <pad> <unk> <s> </s> ▁ X ...
"""

from google.protobuf.message import DecodeError
from sentencepiece import sentencepiece_model_pb2

from keras_transformer.config import SPECIAL_PIECES
from keras_transformer.subwords import SPACE


def adopted(model_bytes: bytes) -> bytes:
    """The same SentencePiece model with our special pieces in front instead of its own."""
    try:
        model = sentencepiece_model_pb2.ModelProto.FromString(model_bytes)
    except DecodeError:
        return model_bytes  # no such model; SentencePiece says so
    if reason := _why_not(model):
        raise ValueError(f"A tokenizer must be bpe or unigram, with one blank before every word. Received: {reason}.")
    spec, kinds = model.trainer_spec, sentencepiece_model_pb2.ModelProto.SentencePiece
    their = spec.pad_piece, spec.unk_piece, spec.bos_piece, spec.eos_piece
    if their == SPECIAL_PIECES and [piece.piece for piece in model.pieces[: len(their)]] == list(their):
        return model_bytes  # as it is
    others = [piece for piece in model.pieces if piece.piece not in (*their, *SPECIAL_PIECES)]
    del model.pieces[:]
    for piece, kind in zip(SPECIAL_PIECES, (kinds.CONTROL, kinds.UNKNOWN, kinds.CONTROL, kinds.CONTROL), strict=True):
        model.pieces.add(piece=piece, type=kind, score=0.0)
    model.pieces.extend(others)
    spec.pad_piece, spec.unk_piece, spec.bos_piece, spec.eos_piece = SPECIAL_PIECES
    spec.pad_id, spec.unk_id, spec.bos_id, spec.eos_id = range(len(SPECIAL_PIECES))
    return model.SerializeToString()


def _why_not(model):
    """What a SentencePiece model has that Python and the graph would not read alike, or that has no words."""
    spec, normalizer = model.trainer_spec, model.normalizer_spec
    normal = [piece.piece for piece in model.pieces if piece.type == piece.NORMAL]
    symbols = {piece.piece for piece in model.pieces if piece.type == piece.USER_DEFINED}
    special = {spec.pad_piece, spec.unk_piece, spec.bos_piece, spec.eos_piece, *SPECIAL_PIECES}
    reasons = {
        "a file that is cut off": not (model.HasField("trainer_spec") and model.HasField("normalizer_spec")),
        spec.ModelType.Name(spec.model_type).lower(): spec.model_type not in (spec.BPE, spec.UNIGRAM),
        "blanks behind words": spec.treat_whitespace_as_suffix,
        "pieces with blanks inside": any(SPACE in piece.lstrip(SPACE) for piece in normal),
        "blanks that are not escaped": not normalizer.escape_whitespaces,
        "runs of blanks that are kept": not normalizer.remove_extra_whitespaces,
        "a symbol with the name of a special piece": bool(symbols & special),
    }
    return next((reason for reason, is_so in reasons.items() if is_so), None)
