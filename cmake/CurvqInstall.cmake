# Install rules and the package that find_package(curvq COMPONENTS formats kernels io ...) reads.
include(CMakePackageConfigHelpers)
get_property(modules GLOBAL PROPERTY CURVQ_MODULES)
foreach(module ${modules})
  install(TARGETS curvq_${module} EXPORT curvqTargets)
  install(DIRECTORY include/curvq/${module} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/curvq)
endforeach()
install(TARGETS curvq_flags EXPORT curvqTargets)
if(CURVQ_TORCH)
  install(TARGETS curvq_all EXPORT curvqTargets)
  install(TARGETS curvq_program)
endif()
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/curvq)
install(EXPORT curvqTargets NAMESPACE curvq:: DESTINATION ${package_dir})
configure_package_config_file(cmake/curvqConfig.cmake.in ${CMAKE_CURRENT_BINARY_DIR}/curvqConfig.cmake
                              INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${CMAKE_CURRENT_BINARY_DIR}/curvqConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/curvqConfig.cmake ${CMAKE_CURRENT_BINARY_DIR}/curvqConfigVersion.cmake
              cmake/FindLibTorch.cmake DESTINATION ${package_dir})
