# How the project's own sources are compiled: the target attnc_warnings, which every target links, and sanitizers.

option(ATTNC_WERROR "Treat the project's compiler warnings as errors (the presets do)" OFF)
set(ATTNC_SANITIZE "" CACHE STRING "Sanitizers to build with, as -fsanitize takes them: address,undefined or thread")

# attnc's own code is -O2: what has to be fast is in the generated kernels.
if(CMAKE_CXX_COMPILER_ID MATCHES "GNU|Clang")
    string(REPLACE "-O3" "-O2" CMAKE_C_FLAGS_RELEASE "${CMAKE_C_FLAGS_RELEASE}")
    string(REPLACE "-O3" "-O2" CMAKE_CXX_FLAGS_RELEASE "${CMAKE_CXX_FLAGS_RELEASE}")
endif()

add_library(attnc_warnings INTERFACE)
target_compile_options(
    attnc_warnings
    INTERFACE
        -Wall
        -Wextra
        -Wpedantic
        -Wshadow
        -Wconversion # 64-bit sizes in the API, 32-bit ones in kernels: each narrowing is written out
        -Wno-missing-field-initializers # naming only the fields that are set is how the API is called
        $<$<COMPILE_LANGUAGE:CXX>:-Wnon-virtual-dtor>
        $<$<COMPILE_LANGUAGE:CXX>:-Woverloaded-virtual>
        $<$<BOOL:${ATTNC_WERROR}>:-Werror>
)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
    # GCC bug 105651: "literal" + std::string warns inside the standard library.
    target_compile_options(attnc_warnings INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wno-restrict>)
endif()

# -O1 and line numbers alone: instrumented code takes half as long to compile as with -O2 -g, and a report says as much.
if(ATTNC_SANITIZE)
    add_compile_options(-fsanitize=${ATTNC_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all -O1 -g1)
    add_link_options(-fsanitize=${ATTNC_SANITIZE})
endif()
