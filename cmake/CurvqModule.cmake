# curvq_module(NAME [DEPENDS target...] [PRIVATE target...]): library curvq_NAME, alias curvq::NAME, from
# lib/NAME/**/*.cc (but cuda/, a target of its own) with its public headers in include/curvq/NAME. A file named *_avx2.cc,
# *_avx_vnni.cc, *_avx512.cc or *_avx512_vnni.cc is compiled for that instruction set and called only after a check at run time.
function(curvq_module name)
  cmake_parse_arguments(ARG "" "" "DEPENDS;PRIVATE" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${name}/*.cc)
  list(FILTER sources EXCLUDE REGEX "/cuda/")
  add_library(curvq_${name} STATIC ${sources})
  add_library(curvq::${name} ALIAS curvq_${name})
  set_target_properties(curvq_${name} PROPERTIES EXPORT_NAME ${name} POSITION_INDEPENDENT_CODE ON)
  target_compile_features(curvq_${name} PUBLIC cxx_std_20)
  target_include_directories(curvq_${name} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
                                                  $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>
                             PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
  target_link_libraries(curvq_${name} PUBLIC ${ARG_DEPENDS} PRIVATE ${ARG_PRIVATE} curvq_flags)
  set(avx512_quiet -Wno-maybe-uninitialized)  # of undefined vectors in GCC's own header
  foreach(source ${sources})
    if(source MATCHES "_avx2\\.cc$")
      set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS "-mavx2;-mfma;-mf16c")
    elseif(source MATCHES "_avx_vnni\\.cc$")
      set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS "-mavx2;-mfma;-mf16c;-mavxvnni")
    elseif(source MATCHES "_avx512\\.cc$")
      set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS "-mavx512f;-mavx512bw;-mavx512vl;-mavx512dq;-mfma;-mf16c;${avx512_quiet}")
    elseif(source MATCHES "_avx512_vnni\\.cc$")
      set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS "-mavx512f;-mavx512bw;-mavx512vl;-mavx512dq;-mavx512vnni;-mfma;-mf16c;${avx512_quiet}")
    endif()
  endforeach()
  set_property(GLOBAL APPEND PROPERTY CURVQ_MODULES ${name})
endfunction()

# curvq_test(NAME [DEPENDS target...]): GoogleTest program from tests/NAME/*_test.cc, one ctest a case.
function(curvq_test name)
  cmake_parse_arguments(ARG "" "" "DEPENDS" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${name}/*_test.cc)
  if(NOT sources)
    return()
  endif()
  add_executable(${name}_test ${sources})
  target_link_libraries(${name}_test PRIVATE ${ARG_DEPENDS} GTest::gmock GTest::gtest GTest::gtest_main curvq_flags)
  target_include_directories(${name}_test PRIVATE ${PROJECT_SOURCE_DIR}/lib ${CMAKE_CURRENT_SOURCE_DIR})
  target_compile_definitions(${name}_test PRIVATE CURVQ_TEST_DATA="${CMAKE_CURRENT_SOURCE_DIR}/data")
  add_test(NAME ${name} COMMAND ${name}_test --gtest_brief=1)
  set_tests_properties(${name} PROPERTIES LABELS quick)
endfunction()

# Lets those sources of `target` that include torch/torch.h (directly, or through nn/decoder.h) use the
# precompiled one of curvq_nn, and keeps it from the others.
function(curvq_precompile_torch target)
  if(NOT target STREQUAL curvq_nn)
    target_precompile_headers(${target} REUSE_FROM curvq_nn)
  endif()
  get_target_property(type ${target} TYPE)
  if(type STREQUAL EXECUTABLE)
    target_compile_options(${target} PRIVATE -fPIC)  # as the header was
  endif()
  get_target_property(sources ${target} SOURCES)
  foreach(source ${sources})
    file(STRINGS ${source} uses REGEX "#include [<\"](torch/torch.h|curvq/nn/decoder.h|curvq/curvature/[a-z_]+.h)[>\"]")
    if(NOT uses)
      set_source_files_properties(${source} TARGET_DIRECTORY ${target} PROPERTIES SKIP_PRECOMPILE_HEADERS ON)
    endif()
  endforeach()
endfunction()
