// The kernels' entry of matrix multiplication, one for each instruction set.
#pragma once

#include "formats/gemm.h"

namespace lockstep {

namespace portable { void MatMul(const MatMulTask& task); }
namespace avx2 { void MatMul(const MatMulTask& task); }
namespace avx512 { void MatMul(const MatMulTask& task); }
namespace neon { void MatMul(const MatMulTask& task); }

}  // namespace lockstep
