// Find objects in an image by a detector with non-maximum suppression; the number of objects depends on the image.
//
//     c++ -std=c++17 detect.cpp $(python -m byoc_rt --cflags --libs) -o detect
//     ./detect detector.byoc image.bin
//
// image.bin holds the float32 numbers of the model's only input. The model returns `boxes` [objects, 4] and `scores`
// [objects], both float32, and `labels` [objects], int64.
#include <byoc_rt.h>

#include <cstdio>
#include <exception>
#include <fstream>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

// ---- Objects of C++ over the C interface ----

struct RuntimeError : std::runtime_error {
  RuntimeError() : std::runtime_error(byoc_rt_last_error()) {}
};

// A result; owns the memory. Released before the program.
class Result {
 public:
  explicit Result(DLManagedTensorVersioned *managed) : managed_(managed, [](auto *self) { self->deleter(self); }) {}

  int64_t size(int axis) const { return managed_->dl_tensor.shape[axis]; }

  template <class T>
  const T *data() const {
    if (managed_->dl_tensor.dtype.bits != 8 * sizeof(T)) throw std::logic_error("other elements are expected");
    return static_cast<const T *>(managed_->dl_tensor.data);
  }

 private:
  std::unique_ptr<DLManagedTensorVersioned, void (*)(DLManagedTensorVersioned *)> managed_;
};

// A function of a program; valid as long as the program.
class Function {
 public:
  explicit Function(const byoc_rt_function *function) : function_(function) {}

  const byoc_rt_tensor_info &input(int32_t index) const { return *byoc_rt_input(function_, index); }

  std::vector<Result> run(const std::vector<const DLTensor *> &inputs) const {
    std::vector<DLManagedTensorVersioned *> pointers(byoc_rt_num_outputs(function_));
    const auto num_inputs = static_cast<int32_t>(inputs.size()), num_results = static_cast<int32_t>(pointers.size());
    if (byoc_rt_run(function_, inputs.data(), num_inputs, pointers.data(), num_results)) throw RuntimeError();
    return std::vector<Result>(pointers.begin(), pointers.end());
  }

 private:
  const byoc_rt_function *function_;
};

class Program {
 public:
  explicit Program(const std::string &path) : program_(load(path), byoc_rt_unload) {}

  Function operator[](const std::string &name) const {
    const byoc_rt_function *function = byoc_rt_find_function(program_.get(), name.c_str());
    if (!function) throw RuntimeError();
    return Function(function);
  }

 private:
  static byoc_rt_program *load(const std::string &path) {
    byoc_rt_program *program = nullptr;
    if (byoc_rt_load(path.c_str(), nullptr, &program)) throw RuntimeError();
    return program;
  }

  std::unique_ptr<byoc_rt_program, void (*)(byoc_rt_program *)> program_;
};

// ---- The program ----

static std::vector<float> read_image(const std::string &path, const std::vector<int64_t> &shape) {
  size_t count = 1;
  for (int64_t size : shape) count *= static_cast<size_t>(size);
  std::vector<float> numbers(count);
  std::ifstream file(path, std::ios::binary);
  if (!file.read(reinterpret_cast<char *>(numbers.data()), static_cast<std::streamsize>(count * sizeof(float))))
    throw std::runtime_error(path + ": cannot be read, or is too short");
  return numbers;
}

static void detect(const std::string &model, const std::string &path) {
  const Program program(model);
  const Function function = program["main"];
  const byoc_rt_tensor_info &info = function.input(0);
  std::vector<int64_t> shape(info.shape, info.shape + info.ndim);
  std::vector<float> numbers = read_image(path, shape);
  DLTensor image{};
  image.data = numbers.data();
  image.device = {kDLCPU, 0};
  image.ndim = info.ndim;
  image.dtype = info.dtype;
  image.shape = shape.data();

  const std::vector<Result> results = function.run({&image});
  const float *box = results.at(0).data<float>(), *scores = results.at(1).data<float>();
  const int64_t *labels = results.at(2).data<int64_t>();
  for (int64_t i = 0; i < results[1].size(0); ++i, box += 4)
    std::printf("label %lld score %.9g box %.9g %.9g %.9g %.9g\n", static_cast<long long>(labels[i]), scores[i], box[0],
                box[1], box[2], box[3]);
}

int main(int argc, char **argv) {
  try {
    if (argc != 3) throw std::runtime_error("usage: detect MODEL IMAGE");
    detect(argv[1], argv[2]);
  } catch (const std::exception &error) {
    std::fprintf(stderr, "detect: %s\n", error.what());
    return 1;
  }
  return 0;
}
