// SPDX-License-Identifier: Apache-2.0
#include "hfreduce/collectives/premultiplied.h"

namespace hfreduce {
namespace {

class Premultiplied final : public Op {
 public:
  Premultiplied(std::shared_ptr<CommunicatorImpl> comm, const OpDescriptor& descriptor,
                const Kernels& kernels, double factor, std::vector<ConstBytes> blocks,
                std::size_t element, Bytes out)
      : Op(std::move(comm), descriptor),
        kernels_(kernels),
        blocks_(std::move(blocks)),
        element_(element),
        out_(out) {
    factor_.before = factor;
    std::size_t elements = out.size / element;
    for (const ConstBytes& block : blocks_) elements += block.size / element;
    wide_ = std::make_unique<std::byte[]>(elements * kernels.acc_size);
  }

  // The places of the accumulators.
  std::vector<ConstBytes> wide_blocks() const {
    std::vector<ConstBytes> places;
    std::byte* at = wide_.get();
    for (const ConstBytes& block : blocks_) {
      std::size_t bytes = block.size / element_ * kernels_.acc_size;
      places.push_back({at, bytes});
      at += bytes;
    }
    return places;
  }
  Bytes wide_out() const {
    std::byte* at = wide_.get();
    for (const ConstBytes& block : blocks_) at += block.size / element_ * kernels_.acc_size;
    return {out_.data != nullptr ? at : nullptr, out_.size / element_ * kernels_.acc_size};
  }
  void set_sum(std::shared_ptr<Op> sum) { sum_ = std::move(sum); }

  void begin() override {
    std::byte* at = wide_.get();
    for (const ConstBytes& block : blocks_) {
      std::size_t count = block.size / element_;
      const void* source = block.data;
      if (count > 0) kernels_.native_to_acc(at, nullptr, &source, 1, count, factor_);
      at += count * kernels_.acc_size;
    }
    sum_->set_place(sequence(), signature(), deadline(), timeout());
    sum_->begin();
  }

  Advance advance() override {
    Advance how = sum_->advance();
    if (how != Advance::kDone || out_.data == nullptr || out_.size == 0) return how;
    const void* source = wide_out().data;
    kernels_.acc_to_native(out_.data, nullptr, &source, 1, out_.size / element_, Scale{});
    return how;
  }
  void cancel() override { sum_->cancel(); }
  void blockers(std::vector<int>* out) const override { sum_->blockers(out); }

 private:
  const Kernels kernels_;
  const std::vector<ConstBytes> blocks_;
  const std::size_t element_;  // bytes
  const Bytes out_;
  Scale factor_;
  std::unique_ptr<std::byte[]> wide_;
  std::shared_ptr<Op> sum_;
};

}  // namespace

DType accumulator_of(DType dtype) {
  if (dtype == DType::kComplex32) return DType::kComplex64;
  return is_floating(dtype) && size_of(dtype) < 4 ? DType::kFloat32 : dtype;
}

std::shared_ptr<Op> make_premultiplied(
    std::shared_ptr<CommunicatorImpl> comm, const OpDescriptor& descriptor, const Kernels& kernels,
    double factor, std::vector<ConstBytes> blocks, std::size_t element, Bytes out,
    const std::function<std::shared_ptr<Op>(std::vector<ConstBytes> in, Bytes out)>& make_sum) {
  auto op = std::make_shared<Premultiplied>(std::move(comm), descriptor, kernels, factor,
                                            std::move(blocks), element, out);
  op->set_sum(make_sum(op->wide_blocks(), op->wide_out()));
  return op;
}

}  // namespace hfreduce
