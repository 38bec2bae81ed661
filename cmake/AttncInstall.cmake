# The installed tree: the command with its own libHalide.so, the runtime with its headers, and the CMake package. All
# paths inside are relative, so the tree may be moved.
include(CMakePackageConfigHelpers)

set(attnc_package_folder "${CMAKE_INSTALL_LIBDIR}/cmake/attnc")
configure_package_config_file(
    "${CMAKE_CURRENT_LIST_DIR}/attncConfig.cmake.in"
    "${CMAKE_CURRENT_BINARY_DIR}/attncConfig.cmake"
    INSTALL_DESTINATION "${attnc_package_folder}"
    PATH_VARS CMAKE_INSTALL_BINDIR CMAKE_INSTALL_LIBDIR CMAKE_INSTALL_INCLUDEDIR
)
write_basic_package_version_file(
    "${CMAKE_CURRENT_BINARY_DIR}/attncConfigVersion.cmake"
    COMPATIBILITY SameMinorVersion
)

install(TARGETS attnc attnc_runtime)
install(FILES "$<TARGET_FILE:Halide::Halide>" DESTINATION "${CMAKE_INSTALL_LIBDIR}/attnc")
if(TARGET attnc_runner)
    install(FILES "${attnc_runner}" DESTINATION "${CMAKE_INSTALL_LIBDIR}/attnc")
endif()
if(TARGET attnc_mpi)
    install(TARGETS attnc_mpi DESTINATION "${CMAKE_INSTALL_LIBDIR}/attnc")
endif()
install(
    FILES "${PROJECT_SOURCE_DIR}/runtime/attnc.h" "${PROJECT_SOURCE_DIR}/runtime/attnc.hpp"
    DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}"
)
install(FILES ${attnc_records} DESTINATION "${CMAKE_INSTALL_DATADIR}/attnc/db")
install(FILES ${attnc_shapes} DESTINATION "${CMAKE_INSTALL_DATADIR}/attnc/shapes")
install(
    FILES
        "${CMAKE_CURRENT_BINARY_DIR}/attncConfig.cmake"
        "${CMAKE_CURRENT_BINARY_DIR}/attncConfigVersion.cmake"
        "${CMAKE_CURRENT_LIST_DIR}/AttncAddLibrary.cmake"
    DESTINATION "${attnc_package_folder}"
)
