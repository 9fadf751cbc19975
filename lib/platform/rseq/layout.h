/*
 * The offsets that instructions of the sections contain. They are plain numbers, because the assembler gets them as
 * text. cache/slot/page.h describes the slot page, and asserts that its structs agree; platform/rseq/rseq.h asserts
 * the rest.
 */
#ifndef SHEAF_RSEQ_LAYOUT_H
#define SHEAF_RSEQ_LAYOUT_H

/* Of the slot page (cache/slot/page.h). */
#define SLOT_SHIFT     16  /* each slot has 64 KiB, a multiple of every page size */
#define SLOT_SHIFT_8   2   /* the same in bytes */
#define LOCAL_AT       8   /* in each slot: what pop_local adds to the id */
#define CONSTANT_AT    64  /* in slot 0: the constant sheaf, where offsets of sheaves start */
#define AREA_AT        96  /* in slot 0: struct rseq_area */
#define CLASS_TABLE_AT 120 /* in slot 0: malloc's table of ids by size */
#define HIGH_HALF_AT   4   /* in a word */

/* Of struct rseq_area, which struct rseq_roots begins with. */
#define RSEQ_AREA_SLOT_AT 8

/* Of the kernel's struct rseq (linux/rseq.h). */
#define RSEQ_CPU_ID_AT 4
#define RSEQ_CS_AT     8
#define RSEQ_MM_CID_AT 24

/* A number, or a name of one, as text. */
#define RSEQ_TEXT(number)    RSEQ_TEXT_OF(number)
#define RSEQ_TEXT_OF(number) #number

/* From base plus the offset of an end: the entry that a push writes, the last object, and the one before. */
#define RSEQ_ENTRY  RSEQ_TEXT(CONSTANT_AT)
#define RSEQ_LAST   RSEQ_TEXT(CONSTANT_AT) "-8"
#define RSEQ_BEFORE RSEQ_TEXT(CONSTANT_AT) "-16"

#endif
