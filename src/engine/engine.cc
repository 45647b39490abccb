#include "engine/engine.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <future>
#include <mutex>
#include <thread>
#include <utility>

#include "base/scope_exit.h"
#include "engine/page_cache.h"
#include "engine/saved_state.h"
#include "engine/sha256.h"
#include "engine/snapshot_cache.h"
#include "engine/stop_matcher.h"

namespace lockstep {
namespace {

using Clock = std::chrono::steady_clock;

double Seconds(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

// One request and its sequence. What the scheduler alone touches stands apart from what both sides share.
class Job final : public Request {
 public:
  Job(RequestOptions request, Sampler chosen_sampler, const Tokenizer& tokenizer)
      : options(std::move(request)),
        sampler(std::move(chosen_sampler)),
        sampler_state(sampler.InitialState()),
        decoder(tokenizer, {.skip_special = !options.show_special, .at_start = false}),
        stops(options.stop, options.include_stop),
        tokens(options.prompt) {
    result.prompt_tokens = static_cast<int64_t>(options.prompt.size());
  }

  State Next(Event* event, std::chrono::milliseconds timeout) override {
    std::unique_lock lock(mutex_);
    // Longer waits would overflow the clock.
    const auto bounded = std::min<std::chrono::milliseconds>(timeout, std::chrono::hours(24));
    ready_.wait_for(lock, bounded, [&] { return !events_.empty() || finished_; });
    if (!events_.empty()) {
      *event = std::move(events_.front());
      events_.pop_front();
      return State::kEvent;
    }
    return finished_ ? State::kFinished : State::kWaiting;
  }
  void Cancel() override { cancelled_.store(true); }
  const Summary& summary() const override { return result; }

  bool cancelled() const { return cancelled_.load(); }
  void Push(Event event) {
    std::lock_guard lock(mutex_);
    events_.push_back(std::move(event));
    ready_.notify_all();
  }
  void Finish() {
    std::lock_guard lock(mutex_);
    finished_ = true;
    ready_.notify_all();
  }

  // The scheduler's.
  RequestOptions options;
  Sampler sampler;
  SamplerState sampler_state;
  StreamDecoder decoder;
  StopMatcher stops;
  std::vector<int32_t> tokens;  // prompt and answer
  int64_t computed = 0;         // positions whose K and V are cached
  std::vector<int32_t> pages;
  int64_t slot = -1;     // of recurrent states
  int64_t restore = -1;  // snapshot with which they begin
  std::vector<int64_t>
      snapshots_at;  // positions in the prompt from which others may go on, ascending
  std::optional<int64_t> snapshot;  // written by the batch under way
  uint64_t answer_prefix = 0;       // of the latest snapshot in the answer
  Clock::time_point started, first_token, last_token;
  Summary result;

 private:
  std::mutex mutex_;
  std::condition_variable ready_;
  std::deque<Event> events_;
  bool finished_ = false;
  std::atomic<bool> cancelled_{false};
};

using JobPtr = std::shared_ptr<Job>;

}  // namespace

class Engine::Impl {
 public:
  explicit Impl(const LoadOptions& options)
      : model_(options),
        sequences_(options.sequences),
        cache_(model_.ranks().pages(), kPageTokens),
        snapshots_(model_.ranks().snapshots()) {
    for (int64_t slot = sequences_; slot-- > 0;) free_slots_.push_back(slot);
    if (model_.leads()) thread_ = std::thread([this] { Loop(); });
  }

  ~Impl() {
    {
      std::lock_guard lock(mutex_);
      closing_ = true;
    }
    wake_.notify_all();
    if (thread_.joinable()) thread_.join();
  }

  Result<std::shared_ptr<Request>> Submit(RequestOptions options) {
    if (auto refusal = PromptRefusal(model_, options.prompt)) return *refusal;
    Result<Sampler> sampler = MakeSampler(options.sampling);
    if (!sampler) return sampler.error();
    auto job =
        std::make_shared<Job>(std::move(options), std::move(sampler).value(), model_.tokenizer());
    {
      std::lock_guard lock(mutex_);
      waiting_.push_back(job);
    }
    wake_.notify_all();
    return std::shared_ptr<Request>(job);
  }

  Model& model() { return model_; }

  void SaveState(std::span<const int32_t> tokens, const std::string& path) {
    BetweenSteps([&] { SaveCached(tokens, path); });
  }

  std::vector<int32_t> LoadState(const std::string& path) {
    std::vector<int32_t> tokens;
    BetweenSteps([&] { tokens = LoadCached(path); });
    return tokens;
  }

 private:
  // Has the scheduler do something, and waits for it. Throws what that throws.
  void BetweenSteps(std::function<void()> work) {
    std::packaged_task<void()> task(std::move(work));
    std::future<void> done = task.get_future();
    {
      std::lock_guard lock(mutex_);
      tasks_.push_back(std::move(task));
    }
    wake_.notify_all();
    done.get();
  }

  // The longest prefix that a request can go on from: recurrent states need a snapshot at its end, pages beyond are given back.
  struct CachedPrefix {
    std::vector<int32_t> pages;  // held
    int64_t known = 0;           // pages that are cached, with or without a snapshot
    int64_t snapshot = -1;
  };
  CachedPrefix MatchCached(std::span<const int32_t> tokens, int64_t most) {
    CachedPrefix prefix{cache_.Match(tokens, most)};
    prefix.known = std::ssize(prefix.pages);
    if (!model_.ranks().recurrent()) return prefix;
    std::optional<int64_t> snapshot;
    while (!prefix.pages.empty() &&
           !(snapshot = snapshots_.Find(cache_.Prefix(prefix.pages.back())))) {
      cache_.Release(prefix.pages.back());
      prefix.pages.pop_back();
    }
    prefix.snapshot = snapshot.value_or(-1);
    return prefix;
  }

  void ReleaseAll(std::vector<int32_t>& pages) {
    for (auto page = pages.rbegin(); page != pages.rend(); ++page) cache_.Release(*page);
    pages.clear();
  }

  void SaveCached(std::span<const int32_t> tokens, const std::string& path) {
    CachedPrefix prefix = MatchCached(tokens, std::ssize(tokens) / kPageTokens);
    const ScopeExit release([&] { ReleaseAll(prefix.pages); });
    WriteSavedState(path, model_, tokens, prefix.pages, prefix.snapshot);
  }

  std::vector<int32_t> LoadCached(const std::string& path) {
    const SavedState state(path, model_);
    if (state.pages() > cache_.free_pages()) {
      throw Failed("{}: expected at least {} free pages, found {}; --ctx-size makes room for more",
                   Printable(path, 4096), state.pages(), cache_.free_pages());
    }
    std::vector<int32_t> pages;
    const ScopeExit release([&] { ReleaseAll(pages); });
    for (int64_t i = 0; i < state.pages(); ++i) {
      const int32_t page = cache_.Allocate().value();
      state.PutPage(i, model_.ranks(), page);
      const auto before = std::span(pages).first(static_cast<size_t>(i));
      const int32_t known = cache_.Publish(
          before, page,
          std::span(state.tokens()).subspan(static_cast<size_t>(i * kPageTokens), kPageTokens));
      pages.push_back(known);
    }
    if (!pages.empty() && model_.ranks().recurrent()) LoadRecurrent(state, pages.back());
    return state.tokens();
  }

  void LoadRecurrent(const SavedState& state, int32_t last_page) {
    const std::optional<int64_t> snapshot = snapshots_.Reserve();
    // Without one the pages are of no use to a sequence, and of no harm.
    if (!snapshot) return;
    state.PutRecurrent(model_.ranks(), *snapshot);
    snapshots_.Publish(*snapshot, cache_.Prefix(last_page));
  }

  Result<Sampler> MakeSampler(const SamplingParams& params) {
    const Tokenizer& tokenizer = model_.tokenizer();
    std::vector<std::vector<int32_t>> breakers;
    if (params.dry_multiplier != 0) {
      auto text_of = [&](int32_t id) {
        return std::string(tokenizer.Has(id) ? tokenizer.BytesOf(id) : "");
      };
      auto tokenize = [&](std::string_view text) { return tokenizer.Encode(text); };
      breakers =
          DryBreakerTokens(params.dry_sequence_breakers, tokenizer.size(), text_of, tokenize);
    }
    return Sampler::Create(params, model_.vocab(), std::move(breakers));
  }

  void Loop() {
    while (AwaitWork()) {
      RunTasks();
      DropCancelled(running_);
      if (running_.empty()) continue;
      try {
        Step();
      } catch (const std::exception& error) {
        // Whose rows went wrong is not known, so none of this step's can be trusted.
        for (const JobPtr& job : running_) Fail(*job, Printable(error.what(), 1000));
        running_.clear();
      }
    }
    for (const JobPtr& job : running_) End(*job, FinishReason::kCancelled);
    for (const JobPtr& job : waiting_) End(*job, FinishReason::kCancelled);
  }

  void RunTasks() {
    std::deque<std::packaged_task<void()>> tasks;
    {
      std::lock_guard lock(mutex_);
      tasks.swap(tasks_);
    }
    for (auto& task : tasks) task();
  }

  // Waits until there are requests and lets as many run as may; false where the engine closes.
  bool AwaitWork() {
    std::unique_lock lock(mutex_);
    wake_.wait(lock, [&] {
      return closing_ || !waiting_.empty() || !running_.empty() || !tasks_.empty();
    });
    if (closing_) return false;
    DropCancelled(waiting_);
    while (!waiting_.empty() && std::ssize(running_) < sequences_) {
      running_.push_back(waiting_.front());
      waiting_.pop_front();
    }
    return true;
  }

  // Takes a slot, and the pages of the longest prefix known when the first row is computed; at least the last prompt token is computed anew, for
  // its logits.
  void Begin(Job& job) {
    const int64_t most =
        job.options.cache_prompt ? (job.result.prompt_tokens - 1) / kPageTokens : 0;
    CachedPrefix prefix = MatchCached(job.tokens, most);
    job.pages = std::move(prefix.pages);
    job.restore = prefix.snapshot;
    job.slot = free_slots_.back();
    free_slots_.pop_back();
    if (model_.ranks().recurrent()) {
      // Where the pages that are known end, as others are likely to share them, and at the prompt's end.
      if (prefix.known > std::ssize(job.pages))
        job.snapshots_at.push_back(prefix.known * kPageTokens);
      if (most > prefix.known) job.snapshots_at.push_back(most * kPageTokens);
    }
    job.computed = std::ssize(job.pages) * kPageTokens;
    job.result.cached_tokens = job.computed;
    job.started = Clock::now();
  }

  // Where this job's next snapshot is due: as planned in the prompt, at every page's end in the answer.
  int64_t NextSnapshot(const Job& job) const {
    if (!job.snapshots_at.empty()) return job.snapshots_at.front();
    const int64_t from = std::max(job.computed, job.result.prompt_tokens - 1);
    return (from / kPageTokens + 1) * kPageTokens;
  }

  // Has the next `count` rows of a job leave a snapshot where one is due. Returns how many rows may follow before another is.
  int64_t PlanSnapshot(Job& job, int64_t count) {
    if (!model_.ranks().recurrent() || !job.options.cache_prompt) return count;
    std::erase_if(job.snapshots_at, [&](int64_t position) { return position < job.computed; });
    if (NextSnapshot(job) > job.computed + count) return count;
    job.snapshot = snapshots_.Reserve();
    if (!job.snapshot) return count;
    return job.snapshots_at.size() < 2 ? count
                                       : std::min(count, job.snapshots_at[1] - job.computed);
  }

  void DropCancelled(std::deque<JobPtr>& jobs) {
    std::erase_if(jobs, [&](const JobPtr& job) {
      if (!job->cancelled()) return false;
      End(*job, FinishReason::kCancelled);
      return true;
    });
  }

  // Adds rows of this job's next tokens to the batch.
  void AddRows(Job& job, int64_t room, Batch& batch) {
    const int64_t pending = static_cast<int64_t>(job.tokens.size()) - job.computed;
    const int64_t count = PlanSnapshot(job, std::min(pending, room));
    for (int64_t i = 0; i < count; ++i) {
      const int64_t position = job.computed + i;
      if (position / kPageTokens >= static_cast<int64_t>(job.pages.size())) {
        // Every running sequence fits the pool at full length, so a page is always to be had.
        std::optional<int32_t> page = cache_.Allocate();
        LOCKSTEP_CHECK(page.has_value(), "no page for position {}", position);
        job.pages.push_back(*page);
      }
      batch.tokens.push_back(job.tokens[static_cast<size_t>(position)]);
      batch.places.push_back({static_cast<int32_t>(batch.sequences.size()), position});
    }
    batch.sequences.push_back({job.pages, job.slot, std::exchange(job.restore, -1),
                               job.snapshot.value_or(-1), NextSnapshot(job)});
    if (count == pending) batch.outputs.push_back(static_cast<int32_t>(batch.tokens.size()) - 1);
  }

  void Step() {
    const ProgramOptions& limits = model_.ranks().options();
    Batch batch;
    struct Share {
      JobPtr job;
      int64_t first, rows;
      bool sampled;
    };
    std::vector<Share> shares;
    // Sequences that only need their next token come first, so that a long prompt does not stop the others' answers.
    std::vector<JobPtr> order(running_.begin(), running_.end());
    std::ranges::stable_sort(order, {}, [](const JobPtr& job) {
      return static_cast<int64_t>(job->tokens.size()) - job->computed > 1;
    });
    for (const JobPtr& job : order) {
      const auto first = static_cast<int64_t>(batch.tokens.size());
      const int64_t room = limits.max_tokens - first;
      if (room == 0 || static_cast<int64_t>(batch.outputs.size()) == limits.max_outputs) break;
      const size_t outputs = batch.outputs.size();
      if (job->pages.empty()) Begin(*job);
      AddRows(*job, room, batch);
      shares.push_back({job, first, static_cast<int64_t>(batch.tokens.size()) - first,
                        batch.outputs.size() > outputs});
    }
    // Those that found no room come first next time.
    std::ranges::rotate(order, order.begin() + std::ssize(shares));
    running_.assign(order.begin(), order.end());

    model_.ranks().Run(batch);
    const std::span<const float> logits = model_.ranks().Result(model_.graph().logits);
    size_t output = 0;
    for (const Share& share : shares) {
      Job& job = *share.job;
      std::span<const float> row;
      if (share.sampled)
        row = logits.subspan(output++ * static_cast<size_t>(model_.vocab()),
                             static_cast<size_t>(model_.vocab()));
      if (!Advance(job, share.first, share.rows, row)) {
        std::erase(running_, share.job);
      }
    }
  }

  // Takes in the rows just computed; false where the job has ended.
  bool Advance(Job& job, int64_t first, int64_t rows, std::span<const float> logits) {
    for (int64_t row = first; row < first + rows; ++row) {
      std::string step = model_.ranks().Fault(row);
      if (!step.empty()) {
        return Fail(job,
                    fmt::format("{}: expected finite numbers, found NaN or infinity at position {}",
                                step, job.computed + row - first));
      }
    }
    const int64_t full_before = job.computed / kPageTokens;
    const int64_t snapshot_at = NextSnapshot(job);
    job.computed += rows;
    if (job.options.cache_prompt) {
      // The rows of these pages were all found finite, so what others share is.
      for (auto i = static_cast<size_t>(full_before);
           i < static_cast<size_t>(job.computed / kPageTokens); ++i) {
        const std::span<const int32_t> tokens =
            std::span(job.tokens).subspan(i * kPageTokens, kPageTokens);
        job.pages[i] = cache_.Publish(std::span(job.pages).first(i), job.pages[i], tokens);
      }
    }
    if (job.snapshot) PublishSnapshot(job, snapshot_at);
    return logits.empty() || Sample(job, logits);
  }

  // Of the answer only the latest snapshot is kept: a conversation goes on from its end.
  void PublishSnapshot(Job& job, int64_t position) {
    const uint64_t prefix =
        cache_.Prefix(job.pages[static_cast<size_t>(position / kPageTokens - 1)]);
    snapshots_.Publish(*job.snapshot, prefix);
    job.snapshot.reset();
    if (!job.snapshots_at.empty()) {
      job.snapshots_at.erase(job.snapshots_at.begin());
      return;
    }
    if (job.answer_prefix != 0) snapshots_.Drop(job.answer_prefix);
    job.answer_prefix = prefix;
  }

  bool Fail(Job& job, std::string error) {
    job.result.error = std::move(error);
    End(job, FinishReason::kError);
    return false;
  }

  bool Sample(Job& job, std::span<const float> logits) {
    const Clock::time_point now = Clock::now();
    if (job.result.generated_tokens == 0) job.first_token = now;
    job.last_token = now;
    if (job.options.max_tokens == 0) {
      job.result.logits_hash = Sha256Hex(std::as_bytes(logits));
      End(job, FinishReason::kLength);
      return false;
    }
    const auto position = static_cast<int64_t>(job.tokens.size());
    Result<TokenDraw> draw =
        job.sampler.Sample({logits, job.tokens, position, {}}, job.sampler_state);
    if (!draw)
      return Fail(job, fmt::format("logits at position {}: {}", position - 1, draw.error().what()));
    const Tokenizer& tokenizer = model_.tokenizer();
    const int32_t token = draw->token;
    const bool ends =
        tokenizer.Has(token) && tokenizer.IsEndOfGeneration(token) && !job.options.ignore_eos;
    job.tokens.push_back(token);
    ++job.result.generated_tokens;

    Event event{token, "", draw->logprob, draw->top};
    if (!ends || job.options.show_special)
      event.text = job.stops.Add(tokenizer.Has(token) ? job.decoder.Add(token) : "");
    const bool stopped = ends || job.stops.stopped();
    const bool full = job.result.generated_tokens == job.options.max_tokens ||
                      static_cast<int64_t>(job.tokens.size()) >= model_.context();
    job.Push(std::move(event));
    if (!stopped && !full) return true;
    job.result.logits_hash = Sha256Hex(std::as_bytes(logits));
    End(job, stopped ? FinishReason::kStop : FinishReason::kLength);
    return false;
  }

  void End(Job& job, FinishReason reason) {
    Summary& result = job.result;
    result.reason = reason;
    if (!job.stops.stopped()) {
      result.tail = job.stops.Add(job.decoder.Finish());
      result.tail += job.stops.Finish();
    }
    result.stop_text = job.stops.met();
    result.tokens = job.tokens;
    if (job.first_token != Clock::time_point{}) {
      result.prompt_seconds = Seconds(job.started, job.first_token);
      result.generate_seconds = Seconds(job.first_token, job.last_token);
    }
    ReleaseAll(job.pages);
    if (job.snapshot) snapshots_.Release(*std::exchange(job.snapshot, std::nullopt));
    if (job.slot >= 0) free_slots_.push_back(std::exchange(job.slot, -1));
    job.Finish();
  }

  Model model_;
  const int64_t sequences_;
  PageCache cache_;
  SnapshotCache snapshots_;
  std::vector<int64_t> free_slots_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<JobPtr> waiting_;
  std::deque<std::packaged_task<void()>> tasks_;
  std::deque<JobPtr> running_;  // the scheduler's thread alone
  bool closing_ = false;
  std::thread thread_;
};

std::optional<Error> PromptRefusal(const Model& model, std::span<const int32_t> prompt) {
  if (prompt.empty()) return Refused("prompt: expected at least one token, found none");
  if (std::ssize(prompt) >= model.context()) {
    return Refused("prompt: expected fewer than {} tokens, the context, found {}", model.context(),
                   prompt.size());
  }
  for (int32_t token : prompt) {
    if (token < 0 || token >= model.vocab()) {
      return Refused("prompt: expected tokens below {}, found {}", model.vocab(), token);
    }
  }
  return std::nullopt;
}

Engine::Engine(const LoadOptions& options) : impl_(std::make_unique<Impl>(options)) {}
Engine::~Engine() = default;
Result<std::shared_ptr<Request>> Engine::Submit(RequestOptions options) {
  return impl_->Submit(std::move(options));
}
const Model& Engine::model() const { return impl_->model(); }
const Tokenizer& Engine::tokenizer() const { return impl_->model().tokenizer(); }
void Engine::SaveState(std::span<const int32_t> tokens, const std::string& path) {
  impl_->SaveState(tokens, path);
}
std::vector<int32_t> Engine::LoadState(const std::string& path) { return impl_->LoadState(path); }
ThreadTeam& Engine::team() { return impl_->model().team(); }
bool Engine::leads() const { return impl_->model().leads(); }
void Engine::Follow() { impl_->model().Follow(); }

}  // namespace lockstep
