# Finds LibTorch's CPU part: target LibTorch::LibTorch (libtorch_cpu, libc10, headers).
#
# Looked for in Torch_DIR, CMAKE_PREFIX_PATH, an importable Python torch, and .deps/torch-* (where
# scripts/setup unpacks the pinned wheel), in this order. Torch's own CMake package is not used: it
# demands a CUDA toolkit for builds of LibTorch that have a CUDA part, which curvq does not link.
set(_hints)
if(Torch_DIR)
  list(APPEND _hints ${Torch_DIR}/../../..)
endif()
foreach(_prefix ${CMAKE_PREFIX_PATH} $ENV{CMAKE_PREFIX_PATH})
  list(APPEND _hints ${_prefix} ${_prefix}/torch ${_prefix}/libtorch ${_prefix}/../../..)
endforeach()
set(_found_by_user ${_hints})
if(NOT LibTorch_ROOT_DIR)
  find_path(LibTorch_ROOT_DIR include/torch/csrc/api/include/torch/torch.h HINTS ${_hints} NO_DEFAULT_PATH)
endif()
if(NOT LibTorch_ROOT_DIR)
  find_program(_python NAMES python3 python)
  if(_python)
    execute_process(COMMAND ${_python} -c "import torch, os; print(os.path.dirname(torch.__file__))"
                    OUTPUT_VARIABLE _torch ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
  endif()
  file(GLOB _deps LIST_DIRECTORIES true ${PROJECT_SOURCE_DIR}/.deps/torch-*/torch)
  find_path(LibTorch_ROOT_DIR include/torch/csrc/api/include/torch/torch.h HINTS ${_torch} ${_deps} NO_DEFAULT_PATH)
endif()
find_library(LibTorch_CPU_LIBRARY torch_cpu HINTS ${LibTorch_ROOT_DIR}/lib NO_DEFAULT_PATH)
find_library(LibTorch_C10_LIBRARY c10 HINTS ${LibTorch_ROOT_DIR}/lib NO_DEFAULT_PATH)
if(LibTorch_ROOT_DIR AND EXISTS ${LibTorch_ROOT_DIR}/include/torch/headeronly/version.h)
  set(_version_header ${LibTorch_ROOT_DIR}/include/torch/headeronly/version.h)
else()
  set(_version_header ${LibTorch_ROOT_DIR}/include/torch/csrc/api/include/torch/version.h)
endif()
if(LibTorch_ROOT_DIR AND EXISTS ${_version_header})
  file(STRINGS ${_version_header} _version REGEX "define TORCH_VERSION_(MAJOR|MINOR|PATCH) ")
  string(REGEX REPLACE ".*MAJOR ([0-9]+).*MINOR ([0-9]+).*PATCH ([0-9]+).*" "\\1.\\2.\\3" LibTorch_VERSION "${_version}")
endif()
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(LibTorch REQUIRED_VARS LibTorch_CPU_LIBRARY LibTorch_C10_LIBRARY LibTorch_ROOT_DIR
                                  VERSION_VAR LibTorch_VERSION)
mark_as_advanced(LibTorch_ROOT_DIR LibTorch_CPU_LIBRARY LibTorch_C10_LIBRARY)

if(LibTorch_FOUND AND NOT TARGET LibTorch::LibTorch)
  add_library(LibTorch::LibTorch INTERFACE IMPORTED)
  target_include_directories(LibTorch::LibTorch SYSTEM INTERFACE
      ${LibTorch_ROOT_DIR}/include ${LibTorch_ROOT_DIR}/include/torch/csrc/api/include)
  target_link_libraries(LibTorch::LibTorch INTERFACE ${LibTorch_CPU_LIBRARY} ${LibTorch_C10_LIBRARY})
  # A CUDA build of libtorch_cpu needs libcudart and libcupti beside it. scripts/setup puts them
  # into .deps/torch-*/nvidia where the system has none.
  file(GLOB _nvidia LIST_DIRECTORIES true ${LibTorch_ROOT_DIR}/../nvidia/*/lib)
  foreach(_dir ${LibTorch_ROOT_DIR}/lib ${_nvidia})
    file(REAL_PATH ${_dir} _dir)
    target_link_options(LibTorch::LibTorch INTERFACE -Wl,-rpath-link,${_dir} -Wl,-rpath,${_dir})
  endforeach()
endif()
