#include "convert/transform.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>

#include "base/checked.h"
#include "base/error.h"

namespace lockstep {
namespace {

uint64_t Product(std::span<const uint64_t> dims) {
  uint64_t product = 1;
  for (uint64_t dim : dims) product *= dim;
  return product;
}

std::string DimsText(const Values::Dims& dims) {
  return fmt::format("[{}]", fmt::join(dims, ", "));
}

[[noreturn]] void RefuseShape(const Values& values, const std::string& expected) {
  throw Refused("{}: expected {}, found a shape of {}", Printable(values.name()), expected,
                DimsText(values.dims()));
}

void ExpectAxis(const Values& values, size_t axis) {
  if (axis >= values.dims().size()) {
    RefuseShape(values, fmt::format("at least {} dimensions", axis + 1));
  }
}

const Format& F32() { return *FindFormat(std::string_view("F32")); }

}  // namespace

Values::Values(std::string name, Dims dims, const Format& own, Reader reader)
    : name_(std::move(name)),
      dims_(std::move(dims)),
      own_(&own),
      reader_(std::make_shared<const Reader>(std::move(reader))) {}

Values Values::Of(std::string name, Dims dims, std::vector<float> numbers) {
  LOCKSTEP_CHECK(Product(dims) == numbers.size(), "{} of {}", numbers.size(), name);
  return Values(std::move(name), std::move(dims), F32(),
                [numbers = std::move(numbers)](uint64_t begin, uint64_t count, float* out) {
                  std::copy_n(numbers.begin() + static_cast<int64_t>(begin), count, out);
                });
}

uint64_t Values::size() const { return Product(dims_); }

Values Pick(const Values& values, size_t axis, uint64_t count,
            std::function<uint64_t(uint64_t)> index) {
  ExpectAxis(values, axis);
  Values::Dims dims = values.dims();
  const uint64_t inner = Product(std::span(dims).subspan(axis + 1)), entries = dims[axis];
  dims[axis] = count;
  for (uint64_t i = 0; i < count; ++i) {
    LOCKSTEP_CHECK(index(i) < entries, "{} of {} in {}", index(i), entries, values.name());
  }
  const auto read = [=](uint64_t begin, uint64_t left, float* out) {
    while (left > 0) {
      const uint64_t entry = begin / inner % count, within = begin % inner;
      const uint64_t from = index(entry);
      // Entries that follow each other in both tensors are read at once.
      uint64_t run = inner - within;
      for (uint64_t i = 1; run < left && entry + i < count && index(entry + i) == from + i; ++i) {
        run += inner;
      }
      run = std::min(run, left);
      values.Read((begin / inner / count * entries + from) * inner + within, run, out);
      begin += run, left -= run, out += run;
    }
  };
  return Values(values.name(), std::move(dims), values.own(), read);
}

Values Slice(const Values& values, size_t axis, uint64_t begin, uint64_t count, uint64_t step) {
  ExpectAxis(values, axis);
  const Size last = Size(begin) + (count == 0 ? Size(0) : Size(count - 1) * step);
  if (count == 0 || !last.fits(values.dims()[axis] - 1)) {
    RefuseShape(values, fmt::format("entries {}, step {}, to the {}th on axis {}", begin, step,
                                    count, axis));
  }
  return Pick(values, axis, count, [=](uint64_t i) { return begin + i * step; });
}

Values Part(const Values& values, size_t axis, uint64_t part, uint64_t parts) {
  ExpectAxis(values, axis);
  if (values.dims()[axis] % parts != 0) {
    RefuseShape(values, fmt::format("a multiple of {} on axis {}", parts, axis));
  }
  const uint64_t count = values.dims()[axis] / parts;
  return Slice(values, axis, part * count, count);
}

Values PairHalves(const Values& values, int64_t heads) {
  ExpectAxis(values, 0);
  return PairLastHalves(values, heads,
                        heads > 0 ? static_cast<int64_t>(values.dims()[0]) / heads : 0);
}

Values PairLastHalves(const Values& values, int64_t heads, int64_t n_rot) {
  ExpectAxis(values, 0);
  const uint64_t rows = values.dims()[0], count = static_cast<uint64_t>(heads);
  if (heads <= 0 || n_rot <= 0 || n_rot % 2 != 0 || rows % count != 0 ||
      rows / count < static_cast<uint64_t>(n_rot)) {
    RefuseShape(values, fmt::format("rows of {} heads, {} of each rotated", heads, n_rot));
  }
  const uint64_t width = rows / count, kept = width - static_cast<uint64_t>(n_rot);
  const uint64_t half = static_cast<uint64_t>(n_rot) / 2;
  return Pick(values, 0, rows, [=](uint64_t i) {
    const uint64_t within = i % width;
    if (within < kept) return i;
    const uint64_t turned = within - kept;
    return i - turned + turned % 2 * half + turned / 2;
  });
}

Values Transpose(const Values& values) {
  ExpectAxis(values, 1);
  Values::Dims dims = values.dims();
  const uint64_t rows = dims[dims.size() - 2], columns = dims.back();
  std::swap(dims[dims.size() - 2], dims.back());
  // Row r of the result is column r of the source: strips of columns are read row by row.
  const auto read = [=](uint64_t begin, uint64_t left, float* out) {
    std::vector<float> strip;
    while (left > 0) {
      const uint64_t matrix = begin / (rows * columns), at = begin % (rows * columns);
      const uint64_t first = at / rows, within = at % rows;
      // Whole rows of the result where the range has them, else the rest of one.
      const uint64_t wide = within == 0 ? std::clamp<uint64_t>(left / rows, 1, columns - first) : 1;
      const uint64_t run = wide > 1 ? wide * rows : std::min(rows - within, left);
      strip.resize(wide);
      for (uint64_t row = 0; row < (wide > 1 ? rows : run); ++row) {
        values.Read((matrix * rows + within + row) * columns + first, wide, strip.data());
        for (uint64_t c = 0; c < wide; ++c) out[c * rows + row] = strip[c];
      }
      begin += run, left -= run, out += run;
    }
  };
  return Values(values.name(), std::move(dims), values.own(), read);
}

Values Reshape(const Values& values, Values::Dims dims) {
  if (Product(dims) != values.size()) {
    RefuseShape(values, fmt::format("numbers for a shape of {}", DimsText(dims)));
  }
  return Values(
      values.name(), std::move(dims), values.own(),
      [values](uint64_t begin, uint64_t count, float* out) { values.Read(begin, count, out); });
}

Values Concat(const std::vector<Values>& parts) {
  LOCKSTEP_CHECK(!parts.empty());
  Values::Dims dims = parts[0].dims();
  std::vector<uint64_t> ends;
  uint64_t rows = 0, end = 0;
  for (const Values& part : parts) {
    const Values::Dims& own = part.dims();
    if (own.empty() || own.size() != dims.size() ||
        !std::equal(own.begin() + 1, own.end(), dims.begin() + 1)) {
      RefuseShape(part, fmt::format("as in {} a shape of {}", Printable(parts[0].name()),
                                    DimsText(parts[0].dims())));
    }
    rows += own[0];
    ends.push_back(end += part.size());
  }
  dims[0] = rows;
  const auto read = [parts, ends](uint64_t begin, uint64_t left, float* out) {
    auto i = static_cast<size_t>(std::ranges::upper_bound(ends, begin) - ends.begin());
    for (; left > 0; ++i) {
      const uint64_t run = std::min(left, ends[i] - begin);
      parts[i].Read(begin - (i == 0 ? 0 : ends[i - 1]), run, out);
      begin += run, left -= run, out += run;
    }
  };
  return Values(parts[0].name(), std::move(dims), parts[0].own(), read);
}

Values Stack(const std::vector<Values>& parts) {
  std::vector<Values> rows;
  for (const Values& part : parts) {
    Values::Dims dims = part.dims();
    if (dims != parts[0].dims()) {
      RefuseShape(part, fmt::format("as in {} a shape of {}", Printable(parts[0].name()),
                                    DimsText(parts[0].dims())));
    }
    dims.insert(dims.begin(), 1);
    rows.push_back(Reshape(part, std::move(dims)));
  }
  return Concat(rows);
}

Values Map(const Values& values, std::function<float(float)> function) {
  return Values(values.name(), values.dims(), F32(),
                [values, function](uint64_t begin, uint64_t count, float* out) {
                  values.Read(begin, count, out);
                  std::transform(out, out + count, out, function);
                });
}

}  // namespace lockstep
