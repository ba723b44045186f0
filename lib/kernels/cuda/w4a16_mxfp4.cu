#include "kernels/cuda/w4a16_launch.cuh"

template std::string curvq::cuda::launch_w4a16_format<curvq::cuda::W4Format::kMxfp4>(
    bool, int, const curvq::cuda::W4A16Args&, void*);
