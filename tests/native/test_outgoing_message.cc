// One message on its way: chunks, marks, ends, holes, packing, and what is sent again.
#include <cmath>
#include <string>
#include <vector>

#include "core/outgoing_message.h"
#include "testing/check.h"

using namespace holdfast;

namespace {

MessageContent content(Delivery delivery, std::uint32_t begin, std::uint32_t end) {
  MessageContent made;
  made.stage = Stage::contribution;
  made.delivery = delivery;
  made.format = Format::f32;
  made.total = 1'000'000;
  made.range = {begin, end};
  return made;
}

// Of a sum that is not closed yet.
MessageContent open_content(Delivery delivery, std::uint32_t begin, std::uint32_t end) {
  MessageContent made = content(delivery, begin, end);
  made.open = true;
  return made;
}

std::string text(ElementRange range) { return std::to_string(range.begin) + "-" + std::to_string(range.end); }

struct Sent {
  std::string ranges;
  int packets = 0;
  int marked = 0;
  int first_marked = -1;
};

// Sends everything that can be sent now.
Sent send_all(OutgoingMessage& message) {
  Sent sent;
  while (message.has_chunk()) {
    const OutgoingMessage::Chunk chunk = message.next_chunk();
    sent.ranges += (chunk.type == PacketType::hole ? "hole " : "") + text(chunk.range) + " ";
    if (chunk.last_percentile) {
      if (sent.marked++ == 0) sent.first_marked = sent.packets;
    }
    message.chunk_sent(chunk);
    // Nothing is left exactly after the chunk that says so.
    HF_EQUAL(chunk.completes, !message.has_chunk());
    ++sent.packets;
  }
  return sent;
}

int marked_of(std::uint32_t packets) {
  OutgoingMessage message(1, content(Delivery::bounded, 0, packets * 32), 32);
  const Sent sent = send_all(message);
  HF_EQUAL(sent.packets, static_cast<int>(packets));
  HF_EQUAL(sent.first_marked, static_cast<int>(packets) - sent.marked);  // they are the last ones
  return sent.marked;
}

}  // namespace

HF_CASE(chunks_follow_the_grid_from_the_start_of_the_range) {
  OutgoingMessage message(1, content(Delivery::bounded, 100, 200), 48);
  HF_CHECK(!message.sent_once());
  HF_EQUAL(send_all(message).ranges, "100-148 148-196 196-200 ");
  HF_CHECK(message.sent_once());
}

HF_CASE(bytes_are_found_from_the_start_of_the_range) {
  std::vector<float> values(100);
  MessageContent made = content(Delivery::bounded, 100, 200);
  made.data = reinterpret_cast<const std::uint8_t*>(values.data());
  OutgoingMessage message(1, made, 48);
  HF_EQUAL(message.bytes_of({148, 196}) - made.data, 4 * 48);
  HF_EQUAL(message.num_bytes(), 400u);
}

HF_CASE(size_in_bytes_of_a_message_past_4_gib_does_not_wrap) {
  MessageContent made = content(Delivery::bounded, 0, 1u << 30);
  made.format = Format::f64;
  HF_EQUAL(OutgoingMessage(1, made, 1024).num_bytes(), std::size_t{8} << 30);
}

HF_CASE(the_last_percentile_is_one_percent_but_at_least_16_packets) {
  HF_EQUAL(marked_of(1), 1);
  HF_EQUAL(marked_of(15), 15);
  HF_EQUAL(marked_of(16), 16);
  HF_EQUAL(marked_of(17), 16);
  HF_EQUAL(marked_of(1600), 16);
  HF_EQUAL(marked_of(1700), 17);
  HF_EQUAL(marked_of(5000), 50);
}

HF_CASE(a_bounded_message_says_its_end_three_times_spaced) {
  OutgoingMessage message(1, content(Delivery::bounded, 0, 64), 32);
  HF_EQUAL(message.end_due_at(), never);
  send_all(message);
  HF_CHECK(message.end_due_at() <= 0);
  HF_CHECK(!message.finished());
  message.end_sent(1000, 500);
  HF_EQUAL(message.end_due_at(), 1500);
  message.end_sent(1500, 700);
  HF_EQUAL(message.end_due_at(), 2200);
  HF_CHECK(!message.finished());
  message.end_sent(2200, 500);
  HF_EQUAL(message.end_due_at(), never);
  HF_CHECK(message.finished());
}

HF_CASE(an_acknowledged_end_is_not_repeated) {
  OutgoingMessage message(1, content(Delivery::bounded, 0, 64), 32);
  send_all(message);
  message.end_sent(1000, 500);
  message.acknowledged({}, true);
  HF_EQUAL(message.end_due_at(), never);
  HF_CHECK(message.finished());
}

HF_CASE(a_bounded_message_never_sends_again) {
  OutgoingMessage message(1, content(Delivery::bounded, 0, 64), 32);
  send_all(message);
  message.lost({0, 32});
  HF_CHECK(!message.has_chunk());
  HF_EQUAL(message.lost_elements(), 32u);
  message.acknowledged({32, 64}, false);
  HF_CHECK(!message.finished());  // the ends are still to be said
}

HF_CASE(a_repaired_message_sends_again_and_says_its_end) {
  MessageContent repaired = content(Delivery::bounded, 100, 292);
  repaired.repaired = true;
  repaired.holes = {{132, 260}};
  OutgoingMessage message(1, std::move(repaired), 64);
  HF_EQUAL(send_all(message).ranges, "100-132 hole 132-260 260-292 ");
  message.acknowledged({100, 132}, false);
  message.end_sent(1000, 500);
  message.acknowledged({}, true);
  HF_CHECK(!message.finished());
  message.lost({100, 132});  // a copy of what has arrived
  message.lost({132, 260});
  message.lost({260, 292});
  HF_EQUAL(send_all(message).ranges, "hole 132-260 260-292 ");
  message.acknowledged({260, 292}, false);
  HF_CHECK(!message.finished());
  message.acknowledged({132, 260}, false);
  HF_CHECK(message.finished());
}

HF_CASE(an_empty_repaired_message_only_says_its_end) {
  MessageContent repaired = content(Delivery::bounded, 100, 100);
  repaired.repaired = true;
  OutgoingMessage message(1, std::move(repaired), 64);
  HF_CHECK(!message.has_chunk() && !message.finished());
  message.acknowledged({}, true);
  HF_CHECK(message.finished());
}

HF_CASE(an_exact_message_sends_again_until_every_chunk_is_acknowledged) {
  OutgoingMessage message(1, content(Delivery::exact, 10, 110), 48);
  send_all(message);
  HF_EQUAL(message.end_due_at(), never);
  message.acknowledged({58, 106}, false);
  HF_CHECK(!message.finished());
  message.lost({10, 58});
  message.lost({106, 110});
  HF_EQUAL(send_all(message).ranges, "10-58 106-110 ");
  message.lost({10, 58});
  HF_EQUAL(send_all(message).ranges, "10-58 ");
  message.acknowledged({106, 110}, false);
  message.acknowledged({10, 58}, false);
  HF_CHECK(message.finished());
}

HF_CASE(resent_chunks_say_so) {
  OutgoingMessage message(1, content(Delivery::exact, 0, 64), 32);
  HF_CHECK(!message.next_chunk().again);
  message.chunk_sent(message.next_chunk());
  message.lost({0, 32});
  HF_CHECK(message.next_chunk().again);
}

HF_CASE(resends_go_before_what_was_never_sent) {
  OutgoingMessage message(1, content(Delivery::exact, 0, 96), 32);
  message.chunk_sent(message.next_chunk());
  message.lost({0, 32});
  HF_EQUAL(send_all(message).ranges, "0-32 32-64 64-96 ");
}

HF_CASE(a_chunk_acknowledged_while_it_waits_to_be_resent_is_not_resent) {
  OutgoingMessage message(1, content(Delivery::exact, 0, 96), 32);
  send_all(message);
  message.lost({0, 32});
  message.lost({32, 64});
  message.acknowledged({0, 32}, false);
  HF_EQUAL(send_all(message).ranges, "32-64 ");
  message.acknowledged({32, 64}, false);
  message.lost({32, 64});  // the other copy
  HF_CHECK(!message.has_chunk());
  message.acknowledged({32, 64}, false);
  message.acknowledged({64, 96}, false);
  HF_CHECK(message.finished());
}

HF_CASE(two_copies_that_are_lost_are_sent_again_once) {
  OutgoingMessage message(1, content(Delivery::exact, 0, 64), 32);
  send_all(message);
  message.lost({0, 32});
  message.lost({0, 32});
  HF_EQUAL(send_all(message).ranges, "0-32 ");
}

HF_CASE(a_probe_goes_first_and_is_queued_once) {
  OutgoingMessage message(1, content(Delivery::exact, 0, 96), 32);
  message.chunk_sent(message.next_chunk());
  message.send_again({0, 32});
  message.send_again({0, 32});
  HF_EQUAL(send_all(message).ranges, "0-32 32-64 64-96 ");
}

HF_CASE(an_empty_note_is_one_empty_packet_that_must_arrive) {
  MessageContent made = content(Delivery::exact, 0, 0);
  made.stage = Stage::note;
  made.format = Format::bytes;
  made.total = 0;
  OutgoingMessage message(1, made, 1024);
  HF_CHECK(message.has_chunk());
  HF_EQUAL(send_all(message).ranges, "0-0 ");
  HF_CHECK(message.sent_once() && !message.finished());
  message.lost({0, 0});
  HF_EQUAL(send_all(message).ranges, "0-0 ");
  message.acknowledged({0, 0}, false);
  HF_CHECK(message.finished());
}

HF_CASE(holes_are_announced_and_their_elements_not_sent) {
  MessageContent made = content(Delivery::bounded, 100, 420);
  made.holes = {{100, 132}, {180, 260}, {404, 420}};
  OutgoingMessage message(1, made, 64);
  HF_EQUAL(send_all(message).ranges, "hole 100-132 132-180 hole 180-260 260-324 324-388 388-404 hole 404-420 ");
  HF_CHECK(message.sent_once());
}

HF_CASE(a_message_that_is_all_hole_is_one_packet) {
  MessageContent made = content(Delivery::bounded, 0, 10'000);
  made.holes = {{0, 10'000}};
  OutgoingMessage message(1, made, 64);
  HF_EQUAL(send_all(message).ranges, "hole 0-10000 ");
  message.end_sent(0, 1);
  message.end_sent(1, 1);
  message.end_sent(2, 1);
  HF_CHECK(message.finished());
}

HF_CASE(gaps_are_counted_where_they_overlap_a_chunk) {
  MessageContent made = content(Delivery::bounded, 0, 320);
  made.gaps = {{{16, 48}, 1}, {{48, 64}, 3}, {{200, 300}, 2}};
  const OutgoingMessage message(1, made, 64);
  HF_EQUAL(message.missing_in({0, 64}), 32u + 3 * 16);
  HF_EQUAL(message.missing_in({0, 16}), 0u);
  HF_EQUAL(message.missing_in({32, 56}), 16u + 3 * 8);
  HF_EQUAL(message.missing_in({64, 200}), 0u);
  HF_EQUAL(message.missing_in({192, 320}), 200u);
}

// -- messages whose parts come one by one -----------------------------------------------------------------------------

HF_CASE(an_open_message_sends_what_was_released_and_says_no_end) {
  OutgoingMessage message(1, open_content(Delivery::bounded, 100, 292), 64);
  HF_CHECK(!message.has_chunk() && !message.sent_once());
  message.release({164, 228});
  HF_CHECK(message.has_chunk());
  const OutgoingMessage::Chunk chunk = message.next_chunk();
  HF_EQUAL(text(chunk.range), "164-228");
  HF_CHECK(!chunk.completes && !chunk.last_percentile);  // more may follow: nothing may be concluded from it
  message.chunk_sent(chunk);
  HF_CHECK(!message.has_chunk() && !message.sent_once() && !message.finished());
  HF_EQUAL(message.end_due_at(), never);
}

HF_CASE(a_closed_message_sends_the_rest_with_its_holes_and_gaps_and_then_its_ends) {
  OutgoingMessage message(1, open_content(Delivery::bounded, 100, 292), 64);
  message.release({164, 228});
  message.chunk_sent(message.next_chunk());
  message.release({100, 164});
  message.release({228, 292});
  message.close({{132, 164}}, {{{228, 244}, 2}}, {});
  HF_CHECK(message.next_chunk().last_percentile);
  HF_EQUAL(send_all(message).ranges, "100-132 hole 132-164 228-292 ");
  HF_EQUAL(message.missing_in({228, 292}), 32u);
  HF_EQUAL(message.missing_in({100, 132}), 0u);
  HF_CHECK(message.sent_once() && message.end_due_at() <= 0);
}

HF_CASE(closing_what_was_sent_in_full_completes_it) {
  OutgoingMessage message(1, open_content(Delivery::bounded, 0, 64), 64);
  message.release({0, 64});
  message.chunk_sent(message.next_chunk());
  HF_CHECK(!message.sent_once());
  message.close({}, {}, {});
  HF_CHECK(message.sent_once() && !message.has_chunk());
  HF_CHECK(message.end_due_at() <= 0);
}

HF_CASE(an_open_exact_message_sends_again_and_ends_with_its_last_acknowledgement) {
  OutgoingMessage message(1, open_content(Delivery::exact, 0, 96), 32);
  message.release({32, 64});
  message.chunk_sent(message.next_chunk());
  message.lost({32, 64});
  const OutgoingMessage::Chunk again = message.next_chunk();
  HF_CHECK(again.again && !again.completes);
  message.chunk_sent(again);
  message.acknowledged({32, 64}, false);
  HF_CHECK(!message.finished());
  message.release({0, 32});
  message.release({64, 96});
  message.close({}, {}, {});
  HF_EQUAL(send_all(message).ranges, "0-32 64-96 ");
  message.acknowledged({0, 32}, false);
  HF_CHECK(!message.finished());
  message.acknowledged({64, 96}, false);
  HF_CHECK(message.finished());
}

HF_CASE(the_mark_of_an_open_message_is_on_the_last_that_leave_after_the_close) {
  OutgoingMessage message(1, open_content(Delivery::bounded, 0, 100 * 32), 32);
  message.release({50 * 32, 100 * 32});
  int early = 0;
  for (; message.has_chunk(); ++early) {
    HF_CHECK(!message.next_chunk().last_percentile);
    message.chunk_sent(message.next_chunk());
  }
  HF_EQUAL(early, 50);
  message.release({0, 50 * 32});
  message.close({}, {}, {});
  const Sent rest = send_all(message);
  HF_EQUAL(rest.packets, 50);
  HF_EQUAL(rest.marked, 16);
  HF_EQUAL(rest.first_marked, 34);
}

HF_CASE(where_it_is_asked_for_packets_end_where_what_they_lack_changes) {
  MessageContent made = content(Delivery::bounded, 0, 320);
  made.gaps = {{{64, 128}, 1}, {{192, 256}, 2}};
  made.without_receiver = {{96, 112}, {192, 208}};
  OutgoingMessage together(1, made, 512);
  HF_EQUAL(send_all(together).ranges, "0-320 ");
  made.cut_at_gaps = true;
  OutgoingMessage apart(1, made, 512);
  HF_EQUAL(send_all(apart).ranges, "0-64 64-96 96-112 112-128 128-192 192-208 208-256 256-320 ");
  HF_CHECK(apart.lacks_receiver({96, 112}) && !apart.lacks_receiver({64, 96}) && apart.lacks_receiver({192, 208}));
}

HF_CASE(what_is_acknowledged_after_all_is_not_sent_again_in_parts_either) {
  OutgoingMessage message(1, content(Delivery::exact, 0, 64), 64);
  send_all(message);
  message.lost({0, 64});
  message.send_again({16, 32});
  message.acknowledged({0, 64}, false);
  HF_CHECK(!message.has_chunk() && message.finished());
}

// -- packed -----------------------------------------------------------------------------------------------------------

namespace {

constexpr std::size_t room = 320;       // bytes of a datagram's elements
constexpr std::uint32_t unpacked = 80;  // elements that these are

// Of one size, so that a block takes 4 + 48 bytes, and eight together two more: six fit, where five do unpacked.
struct PackedMessage {
  std::vector<float> values;
  OutgoingMessage message;
  PackedMessage(std::uint32_t count, bool open = false)
      : values(count, 1.25f), message(1, with_data(Delivery::exact, count, open), unpacked) {}

  MessageContent with_data(Delivery delivery, std::uint32_t count, bool open) {
    MessageContent made = content(delivery, 0, count);
    made.data = reinterpret_cast<const std::uint8_t*>(values.data());
    made.open = open;
    return made;
  }
  std::string next(std::size_t packed_room) {
    const OutgoingMessage::Chunk chunk = message.next_chunk(packed_room);
    message.chunk_sent(chunk);
    return text(chunk.range) + (chunk.packed ? " packed " : " ") + std::to_string(chunk.bytes);
  }
};

}  // namespace

HF_CASE(packed_more_elements_fit_a_datagram_and_full_ones_are_of_one_size) {
  PackedMessage packed(232);
  HF_EQUAL(packed.next(room), "0-96 packed 320");
  HF_EQUAL(packed.next(room), "96-192 packed 320");
  HF_EQUAL(packed.next(room), "192-232 packed 158");  // two blocks and a half, which takes as much as a block
  HF_CHECK(packed.message.sent_once());
}

HF_CASE(what_packing_would_not_shorten_leaves_as_it_is) {
  PackedMessage packed(160);
  for (std::size_t i = 0; i < 160; ++i) packed.values[i] = std::ldexp(1.0f, static_cast<int>(i % 16) * 15 - 110);
  HF_EQUAL(packed.next(room), "0-80 320");
  HF_EQUAL(packed.next(0), "80-160 320");
}

HF_CASE(zeros_take_no_more_than_their_share_of_a_message_into_one_datagram) {
  PackedMessage packed(1000);
  std::fill(packed.values.begin(), packed.values.end(), 0.0f);
  HF_EQUAL(packed.next(room), "0-320 packed 320");  // four times what fits unpacked
}

HF_CASE(what_was_packed_and_lost_is_sent_again_also_where_packing_does_not_pay_any_more) {
  PackedMessage packed(96);
  HF_EQUAL(packed.next(room), "0-96 packed 314");
  packed.message.lost({0, 96});
  HF_EQUAL(packed.next(room), "0-96 packed 314");
  packed.message.lost({0, 96});
  HF_EQUAL(packed.next(0), "0-80 320");
  HF_CHECK(packed.message.has_chunk());
  HF_EQUAL(packed.next(0), "80-96 64");
  HF_CHECK(!packed.message.has_chunk() && !packed.message.finished());
  packed.message.acknowledged({0, 80}, false);
  packed.message.acknowledged({80, 96}, false);
  HF_CHECK(packed.message.finished());
}

HF_CASE(of_a_message_that_grows_only_full_datagrams_leave) {
  PackedMessage packed(1000, true);
  packed.message.release({0, 64});
  HF_CHECK(!packed.message.has_chunk());
  packed.message.release({64, 112});
  HF_CHECK(packed.message.has_chunk());
  HF_EQUAL(packed.next(room), "0-96 packed 320");
  HF_CHECK(!packed.message.has_chunk());  // 96 to 112 would not fill one
  packed.message.release({112, 176});
  HF_CHECK(!packed.message.has_chunk());  // nor would 80, now that it is known that 96 fit
  packed.message.release({224, 240});
  HF_EQUAL(packed.next(room), "96-176 packed 262");  // behind a gap nothing comes next to it any more
  HF_CHECK(!packed.message.has_chunk());
  packed.message.close({}, {}, {});
  HF_EQUAL(packed.next(room), "224-240 packed 54");
}

HF_TEST_MAIN
