// Notes from one peer: put together from any order, delivered once, within limits.
#include <string>

#include "core/note_inbox.h"
#include "testing/check.h"

using namespace holdfast;

namespace {

using Bytes = std::vector<std::uint8_t>;

// A part of note `number`, whose bytes count up from 0; `behind` notes before it are still under way.
std::string give(NoteInbox& inbox, std::uint32_t number, std::uint32_t total, std::uint32_t offset, std::uint32_t count,
                 std::uint32_t behind = 0, std::uint32_t channel = 5) {
  Header header;
  header.type = PacketType::data;
  header.stage = Stage::note;
  header.format = Format::bytes;
  header.sender = 3;
  header.operation = number;
  header.layout = channel;
  header.total = total;
  header.offset = offset;
  header.missing = behind;
  Bytes payload(count);
  for (std::uint32_t i = 0; i < count; ++i) payload[i] = static_cast<std::uint8_t>(offset + i);
  const auto drop = inbox.on_packet(header, payload);
  return drop ? name(*drop) : "accepted";
}

}  // namespace

HF_CASE(a_note_is_put_together_from_any_order) {
  NoteInbox inbox(1000);
  HF_EQUAL(give(inbox, 0, 40, 32, 8), "accepted");
  HF_EQUAL(give(inbox, 0, 40, 0, 16), "accepted");
  HF_CHECK(inbox.take_complete().empty());
  HF_EQUAL(give(inbox, 0, 40, 16, 16), "accepted");
  const std::vector<Note> notes = inbox.take_complete();
  HF_EQUAL(notes.size(), 1u);
  HF_EQUAL(notes[0].sender, 3);
  HF_EQUAL(notes[0].channel, 5u);
  HF_EQUAL(notes[0].number, 0u);
  HF_EQUAL(notes[0].bytes.size(), 40u);
  for (std::size_t i = 0; i < 40; ++i) HF_EQUAL(std::size_t{notes[0].bytes[i]}, i);
  HF_CHECK(inbox.take_complete().empty());
}

HF_CASE(a_note_is_delivered_once) {
  NoteInbox inbox(1000);
  HF_EQUAL(give(inbox, 0, 16, 0, 16), "accepted");
  HF_EQUAL(give(inbox, 0, 16, 0, 16), "duplicate");
  HF_EQUAL(give(inbox, 1, 32, 0, 16), "accepted");
  HF_EQUAL(give(inbox, 1, 32, 0, 16), "duplicate");
  HF_EQUAL(inbox.take_complete().size(), 1u);
}

HF_CASE(an_empty_note_arrives) {
  NoteInbox inbox(1000);
  HF_EQUAL(give(inbox, 0, 0, 0, 0), "accepted");
  HF_EQUAL(give(inbox, 0, 0, 0, 0), "duplicate");
  const auto notes = inbox.take_complete();
  HF_EQUAL(notes.size(), 1u);
  HF_CHECK(notes[0].bytes.empty());
}

HF_CASE(parts_that_contradict_the_first_are_refused) {
  NoteInbox inbox(1000);
  HF_EQUAL(give(inbox, 0, 64, 0, 16), "accepted");
  HF_EQUAL(give(inbox, 0, 48, 16, 16), "mismatch");
  HF_EQUAL(give(inbox, 0, 64, 16, 16, 0, 6), "mismatch");
  HF_EQUAL(give(inbox, 0, 64, 8, 16), "misplaced");
  HF_EQUAL(give(inbox, 0, 64, 16, 8), "misplaced");
  HF_EQUAL(give(inbox, 0, 64, 16, 48), "accepted");
}

HF_CASE(bytes_under_assembly_and_untaken_are_capped_to_the_byte) {
  NoteInbox inbox(100);
  HF_EQUAL(give(inbox, 0, 101, 0, 16), "oversized");
  HF_EQUAL(give(inbox, 0, 60, 0, 16), "accepted");
  HF_EQUAL(give(inbox, 1, 41, 0, 16, 1), "oversized");
  HF_EQUAL(give(inbox, 1, 40, 0, 16, 1), "accepted");
  HF_EQUAL(give(inbox, 0, 60, 16, 44), "accepted");
  HF_EQUAL(give(inbox, 2, 60, 0, 16, 1), "oversized");  // complete, but nobody has taken it
  inbox.release(60);
  HF_EQUAL(give(inbox, 2, 60, 0, 16, 1), "accepted");
  HF_EQUAL(give(inbox, 3, 1, 0, 1, 2), "oversized");
}

HF_CASE(notes_under_assembly_and_untaken_are_capped_in_number) {
  NoteInbox inbox(1 << 20);
  for (std::uint32_t number = 0; number < 1024; ++number) HF_EQUAL(give(inbox, number, 17, 0, 16, number), "accepted");
  HF_EQUAL(give(inbox, 1024, 17, 0, 16, 1024), "oversized");
  HF_EQUAL(give(inbox, 5, 17, 16, 1, 5), "accepted");
  HF_EQUAL(give(inbox, 1024, 17, 0, 16, 1024), "oversized");
  inbox.release(17);
  HF_EQUAL(give(inbox, 1024, 17, 0, 16, 1024), "accepted");
}

HF_CASE(what_the_sender_gave_up_is_freed_by_what_it_sends_next) {
  NoteInbox inbox(100);
  HF_EQUAL(give(inbox, 0, 100, 0, 16), "accepted");
  HF_EQUAL(give(inbox, 1, 50, 0, 16, 1), "oversized");  // note 0 is still under way
  HF_EQUAL(give(inbox, 2, 50, 0, 16, 0), "accepted");   // it is not any more, nor is note 1
  HF_EQUAL(give(inbox, 0, 100, 16, 16), "late");
  HF_EQUAL(give(inbox, 1, 50, 0, 16), "late");
  HF_EQUAL(give(inbox, 2, 50, 16, 34), "accepted");
  HF_EQUAL(inbox.take_complete().size(), 1u);
  HF_EQUAL(give(inbox, 2, 50, 16, 34, 3), "malformed");  // three behind number 2
}

HF_CASE(a_first_part_that_lies_outside_its_note_holds_nothing) {
  NoteInbox inbox(100);
  HF_EQUAL(give(inbox, 0, 100, 8, 16), "misplaced");
  HF_EQUAL(give(inbox, 0, 100, 96, 16), "misplaced");
  HF_EQUAL(give(inbox, 1, 100, 0, 100, 1), "accepted");
}

HF_CASE(forgetting_frees_everything_under_assembly_and_nothing_else) {
  NoteInbox inbox(100);
  HF_EQUAL(give(inbox, 0, 40, 0, 40), "accepted");
  HF_EQUAL(give(inbox, 1, 60, 0, 16, 1), "accepted");
  inbox.forget_incomplete();
  HF_EQUAL(give(inbox, 2, 61, 0, 61, 2), "oversized");
  HF_EQUAL(give(inbox, 2, 60, 0, 60, 2), "accepted");
  HF_EQUAL(inbox.take_complete().size(), 2u);
}

HF_CASE(more_cannot_be_released_than_was_delivered) {
  NoteInbox inbox(100);
  HF_THROWS(inbox.release(0), std::logic_error);
  HF_EQUAL(give(inbox, 0, 40, 0, 40), "accepted");
  HF_THROWS(inbox.release(41), std::logic_error);
  inbox.release(40);
  HF_THROWS(inbox.release(0), std::logic_error);
}

HF_TEST_MAIN
