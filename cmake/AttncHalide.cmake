# Finds Halide (targets Halide::Halide, Halide::Generator, Halide::Runtime) in the .venv that scripts/setup makes;
# -DHalide_DIR=<site-packages>/halide/lib64/cmake/Halide names another one.
# Sets ATTNC_SITE_PACKAGES, where .venv keeps its packages (empty without .venv).

file(GLOB ATTNC_SITE_PACKAGES LIST_DIRECTORIES true "${PROJECT_SOURCE_DIR}/.venv/lib/python3*/site-packages")
if(NOT Halide_DIR)
    set(halide_dir "${ATTNC_SITE_PACKAGES}/halide/lib64/cmake/Halide")
    if(NOT EXISTS "${halide_dir}/HalideConfig.cmake")
        message(FATAL_ERROR "no Halide 21 in ${PROJECT_SOURCE_DIR}/.venv: run scripts/setup, or set Halide_DIR")
    endif()
    set(Halide_DIR "${halide_dir}" CACHE PATH "Halide's CMake package")
endif()

# Halide's Python bindings are not used; leaving them out spares a search for Python and its headers.
set(CMAKE_DISABLE_FIND_PACKAGE_Halide_Python ON)
find_package(Halide 21 REQUIRED COMPONENTS shared)
