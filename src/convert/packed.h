// Numbers as checkpoints store them: plain floats, and codes with scales beside them.
#pragma once

#include <span>

#include "convert/transform.h"
#include "gguf/safetensors.h"

namespace lockstep {

// F64, F32, F16, BF16, FP8 (F8_E4M3, F8_E5M2) or I64. Refused for other types. The tensor must outlive the
// result, here and below.
Values PlainValues(const SafetensorsTensor& tensor);

// FP8 numbers, each times the scale of its block. `scales`: plain numbers, [.., ceil(rows / block
// rows), ceil(columns / block columns)] with the leading dims of `numbers`, or one for all.
// `block`: {rows, columns}, or empty where the shapes say it.
Values ScaledValues(const SafetensorsTensor& numbers, const SafetensorsTensor& scales,
                    std::span<const int64_t> block);

// MXFP4. blocks: U8 [.., groups, 16], the even element in the low half of a byte; scales: U8 [..,
// groups], E8M0. The result is [.., groups * 32].
// Whether two codes lie in each byte of `numbers`, [.., rows, n / 2], with a scale for 32 of them, [.., rows, n / 32], as
// DeepSeek-V4 releases have their experts.
bool IsMxFp4Pair(const SafetensorsTensor& numbers, const SafetensorsTensor& scales);

Values MxFp4Values(const SafetensorsTensor& blocks, const SafetensorsTensor& scales);

}  // namespace lockstep
