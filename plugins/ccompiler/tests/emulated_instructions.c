/* Instructions that the processor lacks, computed by a handler of SIGILL: matrix tiles of bfloat16 (AMX), and products
 * of bytes with VEX prefixes (AVX-VNNI). So tests run machine code for such processors anywhere on x86-64 Linux.
 *
 * The operations follow Intel's manual, volume 2 (LDTILECFG, TILELOADD, TILESTORED, TDPBF16PS, VPDPBUSD). What the manual
 * forbids ends the process, as an instruction of no known form does: tiles without a shape, shapes that do not fit. */
#define _GNU_SOURCE
#include <cpuid.h>
#include <float.h>
#include <math.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <ucontext.h>

#define EXPORT __attribute__((visibility("default")))

enum { TILES = 8, MAX_ROWS = 16, ROW_NBYTES = 64 };
enum { NO_PREFIX, PREFIX_66, PREFIX_F3, PREFIX_F2 };

struct tile {
  int rows, nbytes; /* of a row; 0 where the tile has no shape */
  uint8_t data[MAX_ROWS][ROW_NBYTES];
};

static __thread struct tile tiles[TILES];
static __thread int has_shapes;
static int64_t num_products, num_quads;
static struct sigaction previous;

/* ---- What an instruction says ---- */

struct instruction {
  const uint8_t *code;
  int prefix;
  int operand;  /* the register of the prefix's vvvv */
  int is_long;  /* whether vectors have 256 bits */
  int opcode;
  int is_memory;
  int reg, rm;
  uint8_t *address; /* of memory, without the index */
  int64_t stride;   /* the scaled index */
  int length;
};

static const int order[16] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI, REG_RDI,
                              REG_R8,  REG_R9,  REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15};

/* Reads an instruction with a VEX prefix of three bytes from map 0F38; whether it is one. */
static int decode(const greg_t *registers, struct instruction *instruction) {
  const uint8_t *code = (const uint8_t *)registers[REG_RIP];
  if (code[0] != 0xC4 || (code[1] & 31) != 2 || (code[2] & 0x80)) return 0;
  const int extend_reg = code[1] & 0x80 ? 0 : 8, extend_index = code[1] & 0x40 ? 0 : 8;
  const int extend_base = code[1] & 0x20 ? 0 : 8;
  const int modrm = code[4], mode = modrm >> 6;
  instruction->code = code;
  instruction->operand = ~(code[2] >> 3) & 15;
  instruction->is_long = code[2] >> 2 & 1;
  instruction->prefix = code[2] & 3;
  instruction->opcode = code[3];
  instruction->reg = (modrm >> 3 & 7) | extend_reg;
  instruction->rm = (modrm & 7) | extend_base;
  instruction->is_memory = mode != 3;
  instruction->length = 5;
  instruction->stride = 0;
  instruction->address = NULL;
  if (!instruction->is_memory) return 1;
  const uint8_t *next = code + 5;
  int64_t address = 0;
  int is_relative = 0, has_wide = mode == 2;
  if ((modrm & 7) == 4) {
    const int sib = *next++, index = (sib >> 3 & 7) | extend_index, base = (sib & 7) | extend_base;
    if (index != 4) instruction->stride = (int64_t)registers[order[index]] << (sib >> 6);
    if ((sib & 7) == 5 && mode == 0) has_wide = 1;
    else address = registers[order[base]];
  } else if ((modrm & 7) == 5 && mode == 0) {
    has_wide = is_relative = 1;
  } else {
    address = registers[order[instruction->rm]];
  }
  if (mode == 1) {
    address += (int8_t)*next++;
  } else if (has_wide) {
    int32_t offset;
    memcpy(&offset, next, sizeof(offset));
    next += sizeof(offset);
    address += offset;
  }
  instruction->length = (int)(next - code);
  if (is_relative) address += (int64_t)next;
  instruction->address = (uint8_t *)address;
  return 1;
}

/* ---- Tiles ---- */

static int configure(const uint8_t *shape) {
  if (shape[0] != 1 || shape[1] != 0) return 0;
  for (int t = 0; t < TILES; ++t) {
    uint16_t nbytes;
    memcpy(&nbytes, shape + 16 + 2 * t, sizeof(nbytes));
    const int rows = shape[48 + t];
    if (rows > MAX_ROWS || nbytes > ROW_NBYTES || (rows == 0) != (nbytes == 0)) return 0;
    memset(&tiles[t], 0, sizeof(tiles[t]));
    tiles[t].rows = rows;
    tiles[t].nbytes = nbytes;
  }
  return has_shapes = 1;
}

static float flushed(float number) { return fabsf(number) < FLT_MIN ? copysignf(0, number) : number; }

static float widened(const uint8_t *bits) {
  uint32_t word = (uint32_t)(bits[0] | bits[1] << 8) << 16;
  float number;
  memcpy(&number, &word, sizeof(number));
  return flushed(number);
}

/* Adds the products of rows of pairs and columns of pairs. First the even and the odd ones are summed apart. */
static int multiply(struct tile *sums, const struct tile *left, const struct tile *right) {
  if (sums == left || sums == right || left == right) return 0;
  if (sums->rows != left->rows || left->nbytes != 4 * right->rows || sums->nbytes != right->nbytes) return 0;
  if (left->nbytes % 4 || sums->nbytes % 4) return 0;
  for (int row = 0; row < sums->rows; ++row) {
    for (int column = 0; column < sums->nbytes / 4; ++column) {
      float parts[2] = {0, 0}, sum;
      for (int k = 0; k < right->rows; ++k) {
        for (int part = 0; part < 2; ++part) {
          const float factor = widened(left->data[row] + 4 * k + 2 * part);
          parts[part] = flushed(fmaf(factor, widened(right->data[k] + 4 * column + 2 * part), parts[part]));
        }
      }
      memcpy(&sum, sums->data[row] + 4 * column, sizeof(sum));
      sum = flushed(flushed(sum) + flushed(parts[0] + parts[1]));
      memcpy(sums->data[row] + 4 * column, &sum, sizeof(sum));
    }
  }
  __atomic_add_fetch(&num_products, 1, __ATOMIC_RELAXED);
  return 1;
}

/* Copies the rows of a tile from memory, or to instruction. */
static int move(const struct instruction *instruction, struct tile *tile, int is_load) {
  if (!tile->rows) return 0;
  for (int row = 0; row < tile->rows; ++row) {
    uint8_t *address = instruction->address + row * instruction->stride;
    if (is_load) memcpy(tile->data[row], address, tile->nbytes);
    else memcpy(address, tile->data[row], tile->nbytes);
  }
  return 1;
}

static int run_tiles(const struct instruction *instruction) {
  if (instruction->is_long || instruction->reg > 7) return 0;
  struct tile *tile = &tiles[instruction->reg];
  if (instruction->opcode == 0x49 && instruction->prefix == NO_PREFIX && instruction->is_memory)
    return configure(instruction->address + instruction->stride);
  if (!has_shapes) return 0;
  if (instruction->opcode == 0x49 && instruction->prefix == NO_PREFIX) {
    has_shapes = 0;
    return 1;
  }
  if (instruction->opcode == 0x49 && instruction->prefix == PREFIX_F2 && !instruction->is_memory) {
    memset(tile->data, 0, sizeof(tile->data));
    return tile->rows > 0;
  }
  if (instruction->opcode == 0x4B && instruction->prefix == PREFIX_F2 && instruction->is_memory)
    return move(instruction, tile, 1);
  if (instruction->opcode == 0x4B && instruction->prefix == PREFIX_F3 && instruction->is_memory)
    return move(instruction, tile, 0);
  if (instruction->opcode == 0x5C && instruction->prefix == PREFIX_F3 && !instruction->is_memory &&
      instruction->rm < 8 && instruction->operand < 8)
    return multiply(tile, &tiles[instruction->rm], &tiles[instruction->operand]);
  return 0;
}

/* ---- Vectors ---- */

/* The halves of vector registers in a signal's frame, which the processor loads when the handler returns. */
struct vectors {
  uint8_t *low, *high; /* 16 bytes for each register */
};

static struct vectors find_vectors(ucontext_t *context) {
  uint8_t *area = (uint8_t *)context->uc_mcontext.fpregs;
  uint32_t nbytes, offset, flags, mask;
  __cpuid_count(0xD, 2, nbytes, offset, flags, mask);
  const struct vectors vectors = {area + 160, area + offset};
  uint64_t present;
  memcpy(&present, area + 512, sizeof(present));
  if (!(present & 2)) memset(vectors.low, 0, 256);
  if (!(present & 4)) memset(vectors.high, 0, 256);
  present |= 6;
  memcpy(area + 512, &present, sizeof(present));
  return vectors;
}

static void read_vector(const struct vectors *vectors, int number, uint8_t *target) {
  memcpy(target, vectors->low + 16 * number, 16);
  memcpy(target + 16, vectors->high + 16 * number, 16);
}

/* VPDPBUSD: adds to each 32-bit lane four products of a byte without a sign and one with a sign; sums wrap around. */
static int run_quads(const struct instruction *instruction, ucontext_t *context) {
  if (instruction->opcode != 0x50 || instruction->prefix != PREFIX_66) return 0;
  const struct vectors vectors = find_vectors(context);
  uint8_t sums[32], left[32], right[32];
  read_vector(&vectors, instruction->reg, sums);
  read_vector(&vectors, instruction->operand, left);
  if (instruction->is_memory) memcpy(right, instruction->address + instruction->stride, instruction->is_long ? 32 : 16);
  else read_vector(&vectors, instruction->rm, right);
  for (int lane = 0; lane < (instruction->is_long ? 8 : 4); ++lane) {
    uint32_t sum;
    memcpy(&sum, sums + 4 * lane, sizeof(sum));
    for (int k = 4 * lane; k < 4 * lane + 4; ++k) sum += (uint32_t)(left[k] * (int8_t)right[k]);
    memcpy(sums + 4 * lane, &sum, sizeof(sum));
  }
  if (!instruction->is_long) memset(sums + 16, 0, 16);
  memcpy(vectors.low + 16 * instruction->reg, sums, 16);
  memcpy(vectors.high + 16 * instruction->reg, sums + 16, 16);
  __atomic_add_fetch(&num_quads, 1, __ATOMIC_RELAXED);
  return 1;
}

/* ---- The handler ---- */

static void handle(int number, siginfo_t *info, void *state) {
  (void)number;
  (void)info;
  ucontext_t *context = state;
  greg_t *registers = context->uc_mcontext.gregs;
  struct instruction instruction;
  if (decode(registers, &instruction) && (run_tiles(&instruction) || run_quads(&instruction, context))) {
    registers[REG_RIP] += instruction.length;
    return;
  }
  sigaction(SIGILL, &previous, NULL); /* the instruction is tried again, and ends the process */
}

EXPORT int install_emulation(void) {
  struct sigaction action;
  memset(&action, 0, sizeof(action));
  action.sa_sigaction = handle;
  action.sa_flags = SA_SIGINFO;
  return sigaction(SIGILL, &action, &previous);
}

EXPORT int remove_emulation(void) { return sigaction(SIGILL, &previous, NULL); }

/* How many products of tiles and of vectors of bytes were computed so far. */
EXPORT int64_t count_tile_products(void) { return __atomic_load_n(&num_products, __ATOMIC_RELAXED); }

EXPORT int64_t count_byte_products(void) { return __atomic_load_n(&num_quads, __ATOMIC_RELAXED); }
