# attnc_add_library(NAME name
#                   D_MODEL n NUM_HEADS n [NUM_KV_HEADS n] [HEAD_DIM n] [V_HEAD_DIM n] [K_DIM n] [V_DIM n]
#                   [NO_IN_PROJ] [NO_OUT_PROJ] [CAUSAL] [NO_MASKS] [NO_PROBS] [ADD_BIAS_KV] [ADD_ZERO_ATTN]
#                   [SINK] [ALIBI] [SOFTCAP] [SCORES] [QK_NORM] [ROTARY half|pairs] [CACHE [PAGE_SIZE n]]
#                 | PROBLEM d512_h8_f32
#                 | HF_CONFIG config.json [LAYER encoder.self] [NO_CACHE]
#                   [TARGETS target...] [DB file...] [TUNED_FOR sizes] [NO_RECORDS | SCHEDULE text] [CUDA_SCHEDULE text]
#                   [OUTPUT_DIRECTORY dir])
#
# Compiles an attention layer to a static library when the project is built, and makes the imported target NAME of it:
# target_link_libraries(app PRIVATE NAME) is all that an app needs to include "NAME.h". The options are those of
# `attnc build --help`. Compiled again when an option, the model's configuration, a file of tuning records or attnc itself
# has changed. The project's attnc.tuning.jsonl is looked for from the folder of the CMakeLists.txt upwards.
#
# The files lie in OUTPUT_DIRECTORY, by default ${CMAKE_CURRENT_BINARY_DIR}/NAME. If the variable ATTNC_KERNEL_CACHE
# names a folder, compiled kernels are kept there.

# The file that `attnc build` finds from the source folder: there, or above it up to the root of its git repository.
function(_attnc_project_database result)
    set(folder "${CMAKE_CURRENT_SOURCE_DIR}")
    set(found "")
    while(NOT found)
        if(EXISTS "${folder}/attnc.tuning.jsonl")
            set(found "${folder}/attnc.tuning.jsonl")
        endif()
        cmake_path(GET folder PARENT_PATH parent)
        if(EXISTS "${folder}/.git" OR parent STREQUAL folder)
            break()
        endif()
        set(folder "${parent}")
    endwhile()
    set(${result} "${found}" PARENT_SCOPE)
endfunction()

function(attnc_add_library)
    set(flags NO_IN_PROJ NO_OUT_PROJ CAUSAL NO_MASKS NO_PROBS ADD_BIAS_KV ADD_ZERO_ATTN SINK ALIBI SOFTCAP QK_NORM
        SCORES NO_RECORDS)
    list(APPEND flags NO_CACHE CACHE) # set() would take the word as its own
    set(values D_MODEL NUM_HEADS NUM_KV_HEADS HEAD_DIM V_HEAD_DIM K_DIM V_DIM ROTARY PAGE_SIZE PROBLEM HF_CONFIG LAYER
        SCHEDULE CUDA_SCHEDULE TUNED_FOR)
    cmake_parse_arguments(PARSE_ARGV 0 arg "${flags}" "NAME;OUTPUT_DIRECTORY;${values}" "TARGETS;DB")
    if(arg_UNPARSED_ARGUMENTS)
        list(GET arg_UNPARSED_ARGUMENTS 0 unknown)
        message(FATAL_ERROR "attnc_add_library: unknown argument ${unknown}")
    endif()
    if(arg_KEYWORDS_MISSING_VALUES)
        list(GET arg_KEYWORDS_MISSING_VALUES 0 keyword)
        message(FATAL_ERROR "attnc_add_library: ${keyword} has no value")
    endif()
    if(NOT arg_NAME)
        message(FATAL_ERROR "attnc_add_library: NAME is not given")
    endif()
    if(TARGET "${arg_NAME}")
        message(FATAL_ERROR "attnc_add_library: there is a target ${arg_NAME} already")
    endif()
    set(folder "${CMAKE_CURRENT_BINARY_DIR}/${arg_NAME}")
    if(arg_OUTPUT_DIRECTORY)
        cmake_path(ABSOLUTE_PATH arg_OUTPUT_DIRECTORY BASE_DIRECTORY "${CMAKE_CURRENT_BINARY_DIR}")
        set(folder "${arg_OUTPUT_DIRECTORY}")
    endif()

    set(depends)
    if(arg_HF_CONFIG)
        cmake_path(ABSOLUTE_PATH arg_HF_CONFIG BASE_DIRECTORY "${CMAKE_CURRENT_SOURCE_DIR}")
        list(APPEND depends "${arg_HF_CONFIG}")
    endif()
    set(options --name "${arg_NAME}" -o "${folder}")
    foreach(name IN LISTS values)
        if(arg_${name})
            string(TOLOWER "--${name}" option)
            string(REPLACE "_" "-" option "${option}")
            list(APPEND options ${option} "${arg_${name}}")
        endif()
    endforeach()
    foreach(name IN LISTS flags)
        if(arg_${name})
            string(TOLOWER "--${name}" option)
            string(REPLACE "_" "-" option "${option}")
            list(APPEND options ${option})
        endif()
    endforeach()
    set(link attnc::runtime)
    foreach(target IN LISTS arg_TARGETS)
        list(APPEND options --target "${target}")
        if(target MATCHES "cuda") # the driver is loaded when a layer is made
            list(APPEND link ${CMAKE_DL_LIBS})
        endif()
    endforeach()
    foreach(file IN LISTS arg_DB)
        cmake_path(ABSOLUTE_PATH file BASE_DIRECTORY "${CMAKE_CURRENT_SOURCE_DIR}")
        list(APPEND options --db "${file}")
        list(APPEND depends "${file}")
    endforeach()
    if(NOT arg_NO_RECORDS AND NOT arg_SCHEDULE)
        _attnc_project_database(database)
        list(APPEND depends ${database})
    endif()
    if(ATTNC_KERNEL_CACHE)
        cmake_path(ABSOLUTE_PATH ATTNC_KERNEL_CACHE BASE_DIRECTORY "${CMAKE_CURRENT_BINARY_DIR}" OUTPUT_VARIABLE cache)
        list(APPEND options --kernel-cache "${cache}")
    endif()

    # One at a time: each keeps all cores busy, and the next takes what it has left in the cache.
    get_property(pools GLOBAL PROPERTY JOB_POOLS)
    if(NOT "attnc_libraries=1" IN_LIST pools)
        set_property(GLOBAL APPEND PROPERTY JOB_POOLS attnc_libraries=1)
    endif()

    set(archive "${folder}/lib${arg_NAME}.a")
    add_custom_command(
        OUTPUT "${archive}"
        BYPRODUCTS
            "${folder}/${arg_NAME}.h"
            "${folder}/${arg_NAME}.json"
            "${folder}/${arg_NAME}.pc"
            "${folder}/${arg_NAME}Config.cmake"
            "${folder}/attnc.h"
            "${folder}/attnc.hpp"
            "${folder}/libattnc_runtime.a"
        COMMAND attnc::attnc build ${options}
        WORKING_DIRECTORY "${CMAKE_CURRENT_SOURCE_DIR}"
        DEPENDS ${depends} attnc::attnc "$<TARGET_FILE:attnc::attnc>" "$<TARGET_FILE:attnc::runtime>"
        COMMENT "Compiling attention library ${arg_NAME}"
        JOB_POOL attnc_libraries
        VERBATIM
    )
    add_custom_target(${arg_NAME}-build DEPENDS "${archive}")

    file(MAKE_DIRECTORY "${folder}") # an include directory must exist when it is named
    add_library(${arg_NAME} STATIC IMPORTED GLOBAL)
    set_target_properties(
        ${arg_NAME}
        PROPERTIES
            IMPORTED_LOCATION "${archive}"
            IMPORTED_LINK_INTERFACE_LANGUAGES C
            INTERFACE_INCLUDE_DIRECTORIES "${folder}"
            INTERFACE_LINK_LIBRARIES "${link}"
    )
    add_dependencies(${arg_NAME} ${arg_NAME}-build)
endfunction()
