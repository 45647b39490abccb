#include "ops/multiplied_rows.h"

namespace lockstep {

std::span<const float> MultipliedRow(const QuantizedRows& rows, int64_t token, int64_t first,
                                     int64_t size, std::vector<float>& buffer) {
  const QuantizedRows row = rows.From(token);
  buffer.resize(static_cast<size_t>(size));
  for (int64_t i = 0; i < size; ++i) {
    const int64_t k = first + i;
    buffer[static_cast<size_t>(i)] =
        row.scales[k / kActivationBlock] * static_cast<float>(row.codes[k]);
  }
  return buffer;
}

std::span<const float> MultipliedRow(const Operand& rows, int64_t token, int64_t first,
                                     int64_t size, std::vector<float>& buffer) {
  if (const auto* codes = std::get_if<QuantizedRows>(&rows)) {
    return MultipliedRow(*codes, token, first, size, buffer);
  }
  return {std::get<Rows>(rows).row(token) + first, static_cast<size_t>(size)};
}

void Operation::ShowMultiplied(const StepContext& step, FunctionRef<MultipliedRowFn> see) const {
  std::vector<float> buffer;
  for (size_t i = 0; i < step.in.size(); ++i) {
    for (size_t weight : multiplied_by(i)) {
      if (operand(weight) != OperandKind::kMatrix) continue;
      const int64_t k = std::get<const PackedMatrix*>(step.in[weight])->k;
      for (int64_t t = 0; t < step.tokens(); ++t) {
        see(weight, 0, MultipliedRow(step.in[i], t, 0, k, buffer));
      }
    }
  }
}

}  // namespace lockstep
