# Build rules shared by every folder: flags, one library a layer, one test program a layer, kernels compiled
# once per instruction set.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()

# Kernels are unrolled by hand where it pays: -O3 doubles their size and triples the time to compile them.
set(CMAKE_CXX_FLAGS_RELEASE "-O2 -DNDEBUG")

# What most files include is parsed once (precompiled_headers below). Presets that build for checks leave it out: each file has to include what it uses.
option(LOCKSTEP_PRECOMPILED_HEADERS "Parse common headers once" OFF)

find_program(CCACHE ccache)
if(CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # Precompiled headers are cached only where the cache may leave macros and times inside them unseen.
  set(CMAKE_CXX_COMPILER_LAUNCHER
      ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime ${CCACHE})
endif()
find_package(Threads REQUIRED)
find_package(fmt REQUIRED)

# Contraction would let a compiler choose the rounding: FMA appears only where it is written (docs/numerics.md).
# Designated initializers leave fields to their defaults on purpose.
add_compile_options(-Wall -Wextra -Werror -Wno-missing-field-initializers -ffp-contract=off -fno-math-errno)
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
  add_compile_options(-Wno-restrict)  # false alarms in std::string's operator+ (GCC bug 105651)
endif()
include_directories("${CMAKE_SOURCE_DIR}/src")
if(LOCKSTEP_SANITIZE)
  add_compile_options(-fsanitize=${LOCKSTEP_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${LOCKSTEP_SANITIZE})
  if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
    add_compile_options(-Wno-maybe-uninitialized)  # false alarms in std::regex and std::function (GCC bug 105562)
  endif()
endif()

# Instruction sets, and the flags that a kernel file gets for each (simd/isa.h has the run-time side).
set(LOCKSTEP_ISAS_x86_64 portable avx2 avx512)
set(LOCKSTEP_ISAS_aarch64 portable neon)
set(LOCKSTEP_FLAGS_portable "")
set(LOCKSTEP_FLAGS_avx2 -mavx2 -mfma -mf16c -mbmi2)
set(LOCKSTEP_FLAGS_avx512 -mavx2 -mfma -mf16c -mbmi2 -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx512vnni)
set(LOCKSTEP_FLAGS_neon -march=armv8.2-a+dotprod+fp16)
set(LOCKSTEP_ISAS ${LOCKSTEP_ISAS_${CMAKE_SYSTEM_PROCESSOR}})

# Where tests look for the repository's files: this folder, or "." for programs that are always run from it, whose objects are then the
# same for every clone.
set(LOCKSTEP_TEST_SOURCE_DIR "${CMAKE_SOURCE_DIR}" CACHE STRING "Folder in which tests find the repository's files")

# GCC 12 takes std::string in precompiled headers for code of ours, and warns of what it guesses to be wrong in it.
set(LOCKSTEP_PRECOMPILED_FLAGS $<$<CXX_COMPILER_ID:GNU>:-fpch-preprocess> $<$<CXX_COMPILER_ID:GNU>:-Wno-array-bounds>
    $<$<CXX_COMPILER_ID:GNU>:-Wno-stringop-overflow> $<$<CXX_COMPILER_ID:GNU>:-Wno-stringop-overread>)

# The headers that most files include, once for layers and once for tests, whose flags differ.
function(lockstep_precompiled_headers target)
  if(NOT LOCKSTEP_PRECOMPILED_HEADERS)
    return()
  endif()
  cmake_parse_arguments(ARG "TEST" "" "" ${ARGN})
  set(headers lockstep_headers)
  if(ARG_TEST)
    set(headers lockstep_test_headers)
  endif()
  if(NOT TARGET ${headers})
    file(CONFIGURE OUTPUT "${CMAKE_BINARY_DIR}/${headers}.cc" CONTENT "")
    add_library(${headers} OBJECT "${CMAKE_BINARY_DIR}/${headers}.cc")
    target_link_libraries(${headers} PRIVATE fmt::fmt Threads::Threads)
    target_precompile_headers(
      ${headers} PRIVATE <algorithm> <array> <atomic> <bit> <chrono> <cmath> <cstdint> <cstring> <filesystem> <functional> <limits> <map>
      <memory> <numeric> <optional> <set> <span> <string> <string_view> <thread> <utility> <variant> <vector> <fmt/format.h> <fmt/ranges.h>)
    target_compile_options(${headers} PRIVATE ${LOCKSTEP_PRECOMPILED_FLAGS})
    if(ARG_TEST)
      target_link_libraries(${headers} PRIVATE GTest::gtest)
      target_compile_options(${headers} PRIVATE -O1)
      target_precompile_headers(${headers} PRIVATE <gtest/gtest.h> <random>)
    endif()
  endif()
  target_precompile_headers(${target} REUSE_FROM ${headers})
  target_compile_options(${target} PRIVATE ${LOCKSTEP_PRECOMPILED_FLAGS})
endfunction()

# lockstep_test(TARGET PREFIX [properties of its tests...]): what all test programs share. -O1: they are compiled more often than run.
function(lockstep_test target prefix)
  target_compile_definitions(${target} PRIVATE LOCKSTEP_SOURCE_DIR="${LOCKSTEP_TEST_SOURCE_DIR}")
  target_compile_options(${target} PRIVATE -O1)
  lockstep_precompiled_headers(${target} TEST)
  gtest_discover_tests(${target} TEST_PREFIX "${prefix}" DISCOVERY_TIMEOUT 60 DISCOVERY_MODE PRE_TEST
                       WORKING_DIRECTORY ${CMAKE_SOURCE_DIR} PROPERTIES TIMEOUT 600 ${ARGN})
endfunction()

# lockstep_layer(NAME [DEPS targets...] [KERNELS files...])
# A static library lockstep_NAME of every .cc in the folder; files named *_test.cc become the program NAME_test, files
# named *_fuzz.cc one fuzz target each. KERNELS are compiled once per instruction set with LOCKSTEP_ISA set to its name.
function(lockstep_layer name)
  cmake_parse_arguments(ARG "" "" "DEPS;KERNELS" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS *.cc)
  file(GLOB tests CONFIGURE_DEPENDS *_test.cc)
  file(GLOB fuzzers CONFIGURE_DEPENDS *_fuzz.cc)
  list(REMOVE_ITEM sources ${tests} ${fuzzers})
  foreach(kernel ${ARG_KERNELS})
    list(REMOVE_ITEM sources ${CMAKE_CURRENT_SOURCE_DIR}/${kernel})
  endforeach()

  set(objects)
  if(ARG_KERNELS)
    foreach(isa ${LOCKSTEP_ISAS})
      add_library(lockstep_${name}_${isa} OBJECT ${ARG_KERNELS})
      target_compile_options(lockstep_${name}_${isa} PRIVATE ${LOCKSTEP_FLAGS_${isa}})
      target_compile_definitions(lockstep_${name}_${isa} PRIVATE LOCKSTEP_ISA=${isa} LOCKSTEP_ISA_${isa}=1)
      list(APPEND objects $<TARGET_OBJECTS:lockstep_${name}_${isa}>)
    endforeach()
  endif()

  if(sources OR objects)
    add_library(lockstep_${name} STATIC ${sources} ${objects})
    target_link_libraries(lockstep_${name} PUBLIC ${ARG_DEPS} fmt::fmt Threads::Threads)
    if(sources)
      lockstep_precompiled_headers(lockstep_${name})
    endif()
  else()
    add_library(lockstep_${name} INTERFACE)
    target_link_libraries(lockstep_${name} INTERFACE ${ARG_DEPS} fmt::fmt Threads::Threads)
  endif()

  if(LOCKSTEP_TESTS AND tests)
    add_executable(${name}_test ${tests})
    target_link_libraries(${name}_test PRIVATE lockstep_${name} GTest::gtest GTest::gtest_main)
    lockstep_test(${name}_test "${name}/")
  endif()
  if(LOCKSTEP_FUZZ)
    foreach(source ${fuzzers})
      get_filename_component(stem ${source} NAME_WE)
      add_executable(${stem} ${source})
      target_link_libraries(${stem} PRIVATE lockstep_${name})
      target_compile_options(${stem} PRIVATE -fsanitize=fuzzer)
      target_link_options(${stem} PRIVATE -fsanitize=fuzzer)
    endforeach()
  endif()
endfunction()
