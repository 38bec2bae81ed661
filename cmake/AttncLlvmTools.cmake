# Finds the LLVM tools that write libraries and check generated code: ATTNC_LLVM_MC, ATTNC_LLVM_OBJCOPY,
# ATTNC_LLVM_AR, ATTNC_LLD and ATTNC_FILECHECK. A tool without a version in its name is taken if it is 19 or later.

function(attnc_is_llvm_19 result_variable path)
    execute_process(COMMAND "${path}" --version OUTPUT_VARIABLE text ERROR_QUIET)
    if(NOT text MATCHES "(LLVM version|LLD) ([0-9]+)" OR CMAKE_MATCH_2 LESS 19)
        set(${result_variable} FALSE PARENT_SCOPE)
    endif()
endfunction()

function(attnc_find_llvm_tool variable name package)
    find_program(${variable} NAMES ${name}-19 ${name} VALIDATOR attnc_is_llvm_19 DOC "${name} of LLVM 19 or later")
    if(NOT ${variable})
        message(
            FATAL_ERROR
            "${name} of LLVM 19 or later not found: run scripts/setup (Debian package ${package}), or set ${variable}"
        )
    endif()
endfunction()

attnc_find_llvm_tool(ATTNC_LLVM_MC llvm-mc llvm-19)
attnc_find_llvm_tool(ATTNC_LLVM_OBJCOPY llvm-objcopy llvm-19)
attnc_find_llvm_tool(ATTNC_LLVM_AR llvm-ar llvm-19)
attnc_find_llvm_tool(ATTNC_LLD ld.lld lld-19)
attnc_find_llvm_tool(ATTNC_FILECHECK FileCheck llvm-19-tools)
